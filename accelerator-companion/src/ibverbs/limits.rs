//! What a device can hold, what was asked for, and what a refusal for want of memory means.
//!
//! Promises: a value beyond a limit is refused by its name, or clamped to the limit and said to be, as the caller chose; an
//! ENOMEM carries what was asked, what is pinned, both limits on locked memory, and the count of mappings.
//! Does not do: raising a limit.

use lockgate::{Errno, Error, ErrorKind};
use lockgate_verbs_shim::{DeviceAttributes, QpOptions};

/// What to do with a value that is beyond a limit of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// Takes the limit, and says so.
    Clamp,
    /// Refuses.
    #[default]
    Refuse,
}

/// A value that was clamped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamped {
    /// The field.
    pub field: &'static str,
    /// What was asked for.
    pub asked: u32,
    /// What the device can.
    pub given: u32,
}

/// Holds a value against a limit.
fn fit(
    beyond: Beyond,
    field: &'static str,
    limit: &'static str,
    asked: &mut u32,
    most: u32,
    clamped: &mut Vec<Clamped>,
) -> Result<(), Error> {
    if *asked <= most {
        return Ok(());
    }
    match beyond {
        Beyond::Clamp => {
            clamped.push(Clamped {
                field,
                asked: *asked,
                given: most,
            });
            *asked = most;
            Ok(())
        }
        Beyond::Refuse => Err(Error::new(ErrorKind::Resource, "check limits")
            .with_object(field)
            .with_detail(format!(
                "{asked} was asked for, the device's {limit} is {most}"
            ))
            .with_remedy(format!("ask for at most {most}"))),
    }
}

/// Holds the sizes of a queue pair against the device.
///
/// # Errors
/// The first that is too large, by name, if they are to be refused.
pub fn fit_queue_pair(
    device: &DeviceAttributes,
    options: &mut QpOptions,
    beyond: Beyond,
) -> Result<Vec<Clamped>, Error> {
    let mut clamped = Vec::new();
    let fields: [(&str, &str, &mut u32, u32); 4] = [
        (
            "max_send",
            "max_qp_wr",
            &mut options.max_send,
            device.max_qp_wr,
        ),
        (
            "max_receive",
            "max_qp_wr",
            &mut options.max_receive,
            device.max_qp_wr,
        ),
        (
            "max_send_pieces",
            "max_sge",
            &mut options.max_send_pieces,
            device.max_sge,
        ),
        (
            "max_receive_pieces",
            "max_sge",
            &mut options.max_receive_pieces,
            device.max_sge,
        ),
    ];
    for (field, limit, asked, most) in fields {
        fit(beyond, field, limit, asked, most, &mut clamped)?;
    }
    Ok(clamped)
}

/// Holds the size of a completion queue against the device.
///
/// # Errors
/// If it is too large and is to be refused.
pub fn fit_completion_queue(
    device: &DeviceAttributes,
    entries: &mut u32,
    beyond: Beyond,
) -> Result<Vec<Clamped>, Error> {
    let mut clamped = Vec::new();
    fit(
        beyond,
        "entries",
        "max_cqe",
        entries,
        device.max_cqe,
        &mut clamped,
    )?;
    Ok(clamped)
}

/// What the kernel says about locked memory and mappings of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memory {
    pinned_kib: Option<u64>,
    locked_kib: Option<u64>,
    soft: Option<String>,
    hard: Option<String>,
    maps: Option<usize>,
    most_maps: Option<u64>,
}

impl Memory {
    fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let maps = std::fs::read("/proc/self/maps").ok();
        Self {
            maps: maps.map(|maps| maps.iter().filter(|byte| **byte == b'\n').count()),
            most_maps: text("/proc/sys/vm/max_map_count").trim().parse().ok(),
            ..Self::parse(&text("/proc/self/status"), &text("/proc/self/limits"))
        }
    }

    fn parse(status: &str, limits: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let mut memlock = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"))
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned);
        Self {
            pinned_kib: field("VmPin:"),
            locked_kib: field("VmLck:"),
            soft: memlock.next(),
            hard: memlock.next(),
            ..Self::default()
        }
    }

    fn text(&self, asked: u64) -> String {
        let or = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
        format!(
            "asked for {asked} bytes; pinned {} KiB, locked {} KiB; limit on locked memory soft {}, hard {} bytes; {} of {} mappings",
            or(self.pinned_kib.map(|kib| kib.to_string())),
            or(self.locked_kib.map(|kib| kib.to_string())),
            or(self.soft.clone()),
            or(self.hard.clone()),
            or(self.maps.map(|maps| maps.to_string())),
            or(self.most_maps.map(|most| most.to_string())),
        )
    }
}

/// The error of a call that pins so many bytes.
pub(crate) fn memory_error(step: &'static str, errno: Errno, asked: u64) -> Error {
    let error = Error::from_errno(step, errno);
    if errno != Errno::NOMEM {
        return error.with_detail(format!("asked for {asked} bytes"));
    }
    // The number alone doesn't tell a limit from a lack, so the kind stays what the number proves.
    error.with_detail(Memory::read().text(asked)).with_remedy(
        "if it is the limit: raise it for this process (ulimit -l, LimitMEMLOCK= of the service, --ulimit memlock=-1 of the \
         container) or give CAP_IPC_LOCK; if the mappings are at their count: raise vm.max_map_count",
    )
}

#[cfg(test)]
mod tests {
    use lockgate_verbs_shim::QpType;

    use super::*;

    fn options(max_send: u32) -> QpOptions {
        QpOptions {
            kind: QpType::ReliableConnection,
            max_send,
            max_receive: 8,
            max_send_pieces: 1,
            max_receive_pieces: 1,
            max_inline: 0,
            flags: 0,
            signal_all: false,
        }
    }

    fn device() -> DeviceAttributes {
        DeviceAttributes {
            max_qp_wr: 100,
            max_sge: 4,
            max_cqe: 1000,
            ..DeviceAttributes::new()
        }
    }

    #[test]
    fn what_is_beyond_a_limit_is_refused_by_name_or_clamped_and_said_so() {
        let error = fit_queue_pair(&device(), &mut options(101), Beyond::Refuse).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("max_send") && text.contains("max_qp_wr is 100"),
            "{text}"
        );
        let mut clamp = options(101);
        let clamped = fit_queue_pair(&device(), &mut clamp, Beyond::Clamp).unwrap();
        assert_eq!(clamp.max_send, 100);
        assert_eq!(
            clamped,
            [Clamped {
                field: "max_send",
                asked: 101,
                given: 100
            }]
        );
        let mut fits = options(100);
        assert_eq!(
            fit_queue_pair(&device(), &mut fits, Beyond::Refuse).unwrap(),
            []
        );
        let mut entries = 1001;
        assert!(fit_completion_queue(&device(), &mut entries, Beyond::Refuse).is_err());
        assert_eq!(entries, 1001);
    }

    #[test]
    fn a_lack_of_memory_explains_itself() {
        let memory = Memory {
            maps: Some(70),
            most_maps: Some(65530),
            ..Memory::parse(
                "Name:\tx\nVmLck:\t      12 kB\nVmPin:\t     8192 kB\n",
                "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608              unlimited            bytes\n",
            )
        };
        assert_eq!(
            memory.text(4096),
            "asked for 4096 bytes; pinned 8192 KiB, locked 12 KiB; limit on locked memory soft 8388608, hard unlimited bytes; \
             70 of 65530 mappings"
        );
        let text = memory_error("register memory", Errno::NOMEM, 4096).to_string();
        assert!(!text.contains("unknown"), "this host tells all: {text}");
        let other = memory_error("register memory", Errno::INVAL, 4096);
        assert_eq!(other.remedy(), None);
    }
}
