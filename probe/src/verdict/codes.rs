//! The codes of verdicts: name, exit class, one line, and the text that `--explain` prints. One table.
//!
//! Promises: a code keeps its name and its meaning; names are distinct, in the order of the alphabet, and each has a text. Does
//! not do: deciding when a code applies.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::exit::Exit;

macro_rules! codes {
    ($($variant:ident $name:literal $exit:ident $meaning:literal $text:literal;)*) => {
        /// A code of a verdict.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// Every code.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its stable name.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// How a run ends whose first failure it is.
            pub(crate) const fn exit(self) -> Exit {
                match self { $(Self::$variant => Exit::$exit,)* }
            }

            /// What it means, in one line.
            pub(crate) const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// What `--explain` prints.
            pub(crate) const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

codes! {
    ConfigMissing "config-missing" Library
        "the folder that names the drivers of libibverbs is not there"
        "libibverbs learns the names of its drivers from the files NAME.driver in a folder, /etc/libibverbs.d unless it was built otherwise. Without the folder it knows none, and every device looks as if it were not there. Container images often have the library without the folder.\n\nInstall the package that has it (Debian and Ubuntu: ibverbs-providers; Fedora and RHEL: libibverbs), or mount the folder of the host together with the drivers of the same version.";
    DeviceUnseen "device-unseen" Library
        "the kernel shows a device that the library does not"
        "The device is in sysfs, its node is there and a driver for it can be loaded, yet the library leaves it out. Either the driver does not know this kind of device (it is older than the hardware), or it does not know the ABI number of the kernel's driver, or the library sees another network namespace: with rdma system netns exclusive a device belongs to one namespace.\n\nThe library's own words, if it had any, are the evidence. Compare: rdma link; rdma system.";
    DeviceUsable "device-usable" Ok
        "the device is enumerated and its node may be opened"
        "The library enumerates the device, its node is there, and this process may open it for reading and writing. Nothing was opened to find that out: use --try to open it and try queue pair, flow and registration.";
    DmabufUnsupported "dmabuf-unsupported" Capability
        "the device does not register dmabuf memory"
        "Registering memory of an accelerator through dmabuf needs libibverbs 1.12 and a kernel driver that has the call. The trial passes a descriptor that is none: EBADF says that the driver has the call, EOPNOTSUPP or EPROTONOSUPPORT that it does not. Without it, only a peer-memory module, such as nvidia_peermem, gives a device access to such memory.";
    DriverMissing "driver-missing" Library
        "a device is there and the driver that it needs is not"
        "Each kind of device needs a driver of its own in user space, a file such as libmlx5-rdmav34.so, where 34 is the number of the private ABI. It is in no folder where the library looks, or no file in the configuration names it. Tools may be installed without it: the device is in sysfs and the library counts none.\n\nInstall the package of the drivers (Debian and Ubuntu: ibverbs-providers; Fedora and RHEL: libibverbs), of the same version as the library.";
    DriverUnneeded "driver-unneeded" Ok
        "drivers are configured that are not installed, and no device needs them"
        "Distributions configure every driver they know. libibverbs loads drivers only when it meets a device that none of those loaded so far takes, and then prints a warning for each that can't be loaded. Where no device needs it, the warning is harmless and costs nothing.";
    FlowUnsupported "flow-unsupported" Capability
        "the device does not take a flow rule"
        "A raw-packet queue pair receives what flow rules steer to it. The trial made such a pair and was refused a rule for one Ethernet address. EOPNOTSUPP: the device or its driver has no flow steering (on mlx4: log_num_mgm_entry_size=-1). EPERM: CAP_NET_RAW is missing.";
    ForkUnsafe "fork-unsafe" Failed
        "fork protection is off, and the kernel needs it"
        "Before Linux 5.12 with a library of version 1.13 or newer, a child of fork could take over pages that a device writes to. libibverbs can mark registered memory (RDMAV_FORK_SAFE=1 or ibv_fork_init before anything else), at a price for each registration. Where the kernel copies pinned pages for the child it is not needed. Nothing here uses verbs after a fork.";
    GidLinkLocal "gid-link-local" NoHardware
        "the port has RoCE v2 GIDs of link-local addresses only"
        "Every RoCE v2 GID stands for an address of the port's network interface. With nothing but fe80:: addresses, a peer that is reached through a router, or that chose a GID of an IPv4 address, is not reached: connections time out.\n\nGive the network interface an address; its GID appears at once.";
    GidNone "gid-none" NoHardware
        "an Ethernet port has no RoCE v2 GID"
        "RoCE v2 needs a GID of that type. A table with RoCE v1 entries only, or an empty one, means that the network interface is down or has no address, or that the device is set to v1 (cma_roce_mode, or the firmware).\n\nThe rule by which a GID is chosen: RoCE v2, and the address that was asked for; without one, the first of an IPv4 address, then the first global IPv6 one. Never RoCE v1, never link-local, never a fixed index.";
    HugepagesNone "hugepages-none" MemoryLimit
        "no huge pages are reserved"
        "Huge pages make registrations 15 to 18 times quicker and save entries in the device's translation table. None is needed. With RDMAV_HUGEPAGES_SAFE=1 libibverbs aligns what it marks for fork to huge pages; without it, registering part of one after ibv_fork_init fails with EINVAL.";
    InContainer "in-container" Ok
        "this looks like a container"
        "In a container, three things are apart: /sys shows the devices of the host, /dev/infiniband has the nodes that were mapped, and the device cgroup decides which of those may be opened. Each of them is looked at here by itself.";
    LibraryBroken "library-broken" Library
        "the library can't be loaded"
        "The loader found the file and could not load it. Its own words are the evidence: often a library that it needs in turn, or a symbol version that one of those lacks. probe verify-linkage FILE shows the whole chain.";
    LibraryCrash "library-crash" Library
        "the library ends the process that loads it"
        "The code that runs when the library is loaded ended the process by a signal. It happened in a process of its own, so the probe goes on. An application that loads or links the library ends in the same way, before its first line. Look for a damaged file, a foreign build, or a preloaded library.";
    LibraryDamaged "library-damaged" Library
        "the file of the library can't be read as one"
        "The file that the loader would map is not an ELF file or contradicts itself. Install the package again.";
    LibraryHang "library-hang" Library
        "the library does not come back when it is loaded or asked for devices"
        "Loading the library, or asking it for its devices, took longer than the limit (--limit). It happened in a process of its own, which was ended. A constructor that waits, a file system that does not answer, or a lock that another process holds. Check that the limit is not too short for this host.";
    LibraryMissing "library-missing" Library
        "the loader finds no libibverbs.so.1"
        "The file libibverbs.so.1 is in no folder where the loader looks: LD_LIBRARY_PATH, the run path of the binary, the cache of ldconfig, the default folders. The file libibverbs.so without a number belongs to the development package and does not count.\n\nInstall it: Debian and Ubuntu libibverbs1, Fedora and RHEL libibverbs.";
    LibraryStatic "library-static" Library
        "a copy of libibverbs is linked into the binary"
        "A static libibverbs has no drivers unless each was linked with it, and sees no device; drivers that it loads bring the shared library with them, and then two copies keep apart what has to be together.\n\nLink the shared library: -libverbs, without -static.";
    LibraryTwoCopies "library-two-copies" Library
        "two copies of libibverbs are in one process"
        "Each copy has its own list of drivers and devices, and handles of one given to the other are read by another layout: registrations fail, or memory is damaged. Causes are a vendored copy beside the system's, a preloaded one, or a plugin that was linked statically.\n\nSee to it that all parts find the same file: one run path, no LD_PRELOAD, no vendored copy.";
    LibraryWrongArch "library-wrong-arch" Library
        "the library is of another architecture"
        "The loader passes over files of another architecture as if they were not there, and then says that the file was not found. Install the package of the architecture of the program, and take folders of another out of LD_LIBRARY_PATH.";
    LinkageDlopen "linkage-dlopen" Ok
        "the binary loads the library while it runs"
        "The binary does not name libibverbs.so.1 among the libraries it needs but has the name among its texts: it is loaded while the program runs. It then starts on hosts without the library, and tools such as ldd and package managers don't see that it is needed.";
    LinkageMissing "linkage-missing" Library
        "the binary needs a library that the loader does not find"
        "One of the libraries that the binary needs, or that those need in turn, is in no folder where the loader looks. The program ends before its first line. The evidence names the library, who needs it and where it was looked for.";
    LinkageNone "linkage-none" Ok
        "the binary has nothing to do with libibverbs"
        "It neither needs the library nor has a copy of it nor names it.";
    LinkageNotNeeded "linkage-not-needed" Library
        "the binary uses verbs and does not name the library that has them"
        "Symbols of libibverbs are undefined, and libibverbs.so.1 is not among the libraries that the binary needs. With --as-needed the linker drops a library that stands before its user on the command line: -libverbs must come after the objects and after whatever wraps it. The program works only where something else loads the library first.";
    LinkageOk "linkage-ok" Ok
        "the binary is linked with one shared libibverbs, which has all that it needs"
        "libibverbs.so.1 is among the libraries that the binary needs, the loader finds one file for it, and every symbol version that is needed is defined.";
    LinkageUnversioned "linkage-unversioned" Library
        "the binary loads libibverbs.so by the name of the development link"
        "The name libibverbs.so belongs to the development package. Hosts that run programs have only libibverbs.so.1, and loading the other name fails there. Load libibverbs.so.1.";
    LinkageVersions "linkage-versions" Library
        "a symbol version that is needed is not defined"
        "A binary or library was built against a newer or another build of the library than the one that the loader finds. It refuses to load, with version 'NAME' not found. Install the version that it was built with, or build it here; and look for a second copy earlier in the search order.";
    MapCountHigh "map-count-high" MemoryLimit
        "this process has used most of its mappings"
        "Marking memory for fork splits mappings, and so does registering and releasing many pieces. At vm.max_map_count everything that maps fails with ENOMEM, whatever memory there is. Register pools once, or raise it: sysctl -w vm.max_map_count=1048576.";
    MemlockLow "memlock-low" MemoryLimit
        "the limit on locked memory is too small"
        "Registered memory is locked, and a process without CAP_IPC_LOCK may lock no more than its soft limit. Queues count too. What fails is not always the registration: creating a queue pair or a completion queue with ENOMEM has the same cause. The limit of a service or a container is not the one of a shell.\n\nRaise it: LimitMEMLOCK=infinity in the unit, memlock in /etc/security/limits.conf, --ulimit memlock=-1 for a container.";
    ModuleMissing "module-missing" NoHardware
        "the kernel has devices and no interface to them"
        "Devices are in /sys/class/infiniband and none of them in /sys/class/infiniband_verbs: the module ib_uverbs is not loaded. modprobe ib_uverbs; to keep it, name it in /etc/modules-load.d.";
    NetRawMissing "net-raw-missing" Permission
        "CAP_NET_RAW is missing"
        "Creating a queue pair for raw packets needs CAP_NET_RAW in the user namespace that owns the network namespace of the device. Everything else in verbs does without it. Give it: setcap cap_net_raw+ep FILE, AmbientCapabilities=CAP_NET_RAW in the unit, --cap-add NET_RAW for a container. Some old OFED kernels have a switch instead: ib_uverbs disable_raw_qp_enforcement.";
    NoDevice "no-device" NoHardware
        "this host has no RDMA device"
        "The kernel shows none in /sys/class/infiniband. Either there is no such hardware, or its kernel driver is not loaded or failed (dmesg, lspci -k), or, in a container, /sys is not the host's, or the device belongs to another network namespace (rdma system).\n\nFor tests without hardware: modprobe rdma_rxe, then rdma link add rxe0 type rxe netdev INTERFACE.";
    NodeDenied "node-denied" Permission
        "this process may not open the node of the device"
        "Opening a device means opening /dev/infiniband/uverbsN for reading and writing. EACCES comes from owner, group and mode of the node. EPERM with a mode that would allow it comes from the device cgroup or a security module: in a container, the device was not allowed (--device). A mount with nodev forbids every node in it.";
    NodeMissing "node-missing" NoHardware
        "the node of the device is not there"
        "The kernel has the device, and /dev/infiniband has no node for it. udev makes it on a host (is it running?); in a container only the nodes that were mapped are there, and a container may see more devices in /sys than it was given. The library leaves such a device out without a word.";
    NodeStale "node-stale" NoHardware
        "the node stands for another device"
        "The numbers of the node are not those that sysfs gives: it was made for another device or by hand, or is not a character device. The library refuses it. Remove it and let udev make it, or map it anew.";
    PortDown "port-down" NoHardware
        "a port is not active"
        "The port has no link, or its state is not ACTIVE. On Ethernet the state follows the network interface: ip link set INTERFACE up. On InfiniBand a subnet manager has to be there: INIT means that the link is up and no manager has spoken.";
    ProviderAbi "provider-abi" Library
        "a driver is built for another private ABI than the library has"
        "libibverbs and its drivers share a private ABI with a number, which is in the file names (libmlx5-rdmav34.so) and in a symbol version (IBVERBS_PRIVATE_34). Mixed packages, such as a vendor's drivers with the distribution's library, do not fit together.\n\nInstall both from the same source.";
    ProviderBroken "provider-broken" Library
        "a driver that a device needs can't be loaded"
        "The file is there and the loader refuses it. Its own words are the evidence, or what is wrong with the file or with a library that it needs.";
    ProviderCrash "provider-crash" Library
        "a driver ends the process that loads it"
        "The process that loaded the driver ended by a signal. Every program that uses verbs ends so on this host as long as the driver is configured and some device is not taken by another driver. Take its file out of the configuration folder until it is mended.";
    ProviderHang "provider-hang" Library
        "a driver does not come back when it is loaded"
        "Loading the driver took longer than the limit (--limit). Every program that uses verbs hangs so on this host as long as the driver is configured and some device is not taken by another driver.";
    ProviderVersions "provider-versions" Library
        "a driver needs a symbol version that is not there"
        "The driver was built with another version of a library than the one that the loader finds, libibverbs itself or, say, libmlx5 of a vendor's release. The loader refuses it: version 'NAME' not found.\n\nInstall library and drivers from the same source.";
    ProviderWrongArch "provider-wrong-arch" Library
        "a driver is of another architecture"
        "The loader does not load files of another architecture than the process has. Install the drivers of this architecture.";
    RawPacketDenied "raw-packet-denied" Permission
        "a queue pair for raw packets was refused for want of a privilege"
        "The device was opened and the trial of a RAW_PACKET queue pair ended with EPERM: CAP_NET_RAW is missing in the user namespace that owns the device's network namespace.";
    RawPacketUnsupported "raw-packet-unsupported" Capability
        "the device has no queue pairs for raw packets"
        "The trial of a RAW_PACKET queue pair was refused, by the driver or the kernel. Soft-RoCE and most iWARP devices have none. Receive with a provider over the network interface instead; name it yourself, nothing falls back to it.";
    RegistrationFailed "registration-failed" MemoryLimit
        "registering one page failed"
        "The trial registered 4,096 bytes and was refused. ENOMEM: the limit on locked memory is used up, see memlock-low, or vm.max_map_count is reached.";
    SwitchUnsafe "switch-unsafe" Failed
        "an environment variable changes what the library promises"
        "RDMAV_ALLOW_DISASSOC_DESTROY=1 and MLX4_DEVICE_FATAL_CLEANUP=1 let destroy calls report success when the kernel's driver is gone: released then proves nothing. RDMAV_DRIVERS and IBV_DRIVERS load files into every process that uses verbs. SYSFS_PATH lets the library read another tree than the kernel's.";
    TryFailed "try-failed" Provider
        "opening the device or a basic object of it failed"
        "The trial opened the device, or made a protection domain or a completion queue, and was refused. The error number is the evidence. EMFILE, ENOMEM: limits. EACCES, EPERM: node or cgroup. ENODEV, ENXIO, EIO: the device is gone or broken: dmesg.";
    VerbsWorks "try-worked" Ok
        "everything that was tried on the device worked"
        "The device was opened, and a protection domain, a registration and a completion queue were made and destroyed. What else it can do stands in its list of trials.";
}

impl ValueEnum for Code {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_in_order_and_each_has_its_texts() {
        let names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        for code in Code::ALL {
            assert!(code.meaning().len() < 90, "{}", code.name());
            assert!(code.explanation().len() > 40, "{}", code.name());
        }
    }
}
