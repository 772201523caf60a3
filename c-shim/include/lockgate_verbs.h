/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The verbs that Lockgate calls, as plain functions.
 *
 * Why: half of the verbs are macros or inline functions of <infiniband/verbs.h>, and some of the exported names are
 * legacy entries with other structs behind them. So every verb goes through here, none is bound beside it.
 *
 * Rules, kept by every function below:
 *  - The result is 0, or a count where the text says so, or a negative error number. What libibverbs answers as a
 *    positive number, a negative number, or -1 with errno, comes out in this one form. A call that failed and said
 *    nothing about why gives -EPROTO.
 *  - Outputs are written last and only on success. The one exception is named `posted` and is written always.
 *  - A struct begins with its size in bytes, which the caller sets, for inputs and outputs alike; another size than
 *    this header's gives -EINVAL. Arrays on the data path are told their element's size in an argument instead.
 *  - Unknown flag bits, kinds and opcodes give -EINVAL before the library is called. So does a reserved field that
 *    isn't zero.
 *  - A verb that the library, the kernel or the device lacks gives -EOPNOTSUPP. Nothing aborts.
 *  - Without the library (LGV_LINK_STUB) every function gives -ELIBACC, but lgv_link_* and lgv_rkey_next(), which
 *    need none.
 *  - No function keeps state of its own. Which threads may call is what libibverbs says: all verbs may be called from
 *    any thread, an object must not be used after its destroy call has begun.
 *
 * Values keep the numbers of <infiniband/verbs.h>; the C files assert that. Structs have the same layout on every
 * 64-bit machine; the assertions below pin their sizes.
 */
#ifndef LOCKGATE_VERBS_H
#define LOCKGATE_VERBS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LGV_API __attribute__((visibility("default")))
#define LGV_PIN_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)

/* Objects of libibverbs; their insides are nobody's business here. */
struct ibv_ah;
struct ibv_comp_channel;
struct ibv_context;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_device;
struct ibv_flow;
struct ibv_mr;
struct ibv_mw;
struct ibv_pd;
struct ibv_qp;

/* ---- the link ------------------------------------------------------------------------------------------------- */

#define LGV_LINK_STUB 0u
#define LGV_LINK_LIBRARY 1u

#define LGV_OPTIONAL_DMABUF 1u
#define LGV_OPTIONAL_GID_ENTRY 2u
#define LGV_OPTIONAL_FORK_STATUS 3u

/** lgv_link_mode - LGV_LINK_LIBRARY, or LGV_LINK_STUB where the build left the library out. */
LGV_API uint32_t lgv_link_mode(void);

/**
 * lgv_link_optional - 1 if the loaded library has this optional verb, else 0.
 * @verb: one of LGV_OPTIONAL_*; an unknown one is answered with 0.
 *
 * Looked up by name and symbol version, so that an older library still loads.
 */
LGV_API uint32_t lgv_link_optional(uint32_t verb);

/* ---- devices (device.c) --------------------------------------------------------------------------------------- */

struct lgv_device_info {
	uint32_t size;
	int32_t node_type;
	int32_t transport_type;
	int32_t index; /* the kernel's device index, -1 where it has none */
	uint8_t guid[8]; /* network order */
	char name[64]; /* "rxe0" */
	char dev_name[64]; /* "uverbs0" */
	char dev_path[256];
	char ibdev_path[256];
};
LGV_PIN_SIZE(struct lgv_device_info, 664);

struct lgv_context_info {
	uint32_t size;
	int32_t cmd_fd;
	int32_t async_fd;
	int32_t num_comp_vectors;
};
LGV_PIN_SIZE(struct lgv_context_info, 16);

/* Bits of lgv_device_attr.cap_flags that Lockgate asks about; others may be set. */
#define LGV_DEVICE_MEM_WINDOW (1u << 17)
#define LGV_DEVICE_MEM_MGT_EXTENSIONS (1u << 21)
#define LGV_DEVICE_MEM_WINDOW_TYPE_2A (1u << 23)
#define LGV_DEVICE_MEM_WINDOW_TYPE_2B (1u << 24)
#define LGV_DEVICE_MANAGED_FLOW_STEERING (1u << 29)

struct lgv_device_attr {
	uint32_t size;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint64_t cap_flags;
	uint64_t timestamp_mask; /* 0: no completion timestamps */
	uint64_t core_clock_khz; /* 0: unknown */
	uint64_t odp_general_caps;
	uint64_t max_dm_size;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_sge_rd;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_mr;
	uint32_t max_pd;
	uint32_t max_mw;
	uint32_t max_ah;
	uint32_t max_qp_rd_atom;
	uint32_t max_qp_init_rd_atom;
	uint32_t max_mcast_grp;
	uint32_t max_mcast_qp_attach;
	uint32_t max_total_mcast_qp_attach;
	uint32_t max_raw_ethy_qp;
	uint32_t atomic_cap;
	uint32_t raw_packet_caps;
	uint32_t phys_port_cnt;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t reserved;
	char fw_ver[64];
	uint8_t node_guid[8]; /* network order */
	uint8_t sys_image_guid[8]; /* network order */
};
LGV_PIN_SIZE(struct lgv_device_attr, 232);

struct lgv_port_attr {
	uint32_t size;
	uint32_t state;
	uint32_t max_mtu; /* 1 to 5: 256 to 4096 bytes */
	uint32_t active_mtu;
	uint32_t gid_tbl_len;
	uint32_t cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint16_t cap_flags2;
	uint8_t lmc;
	uint8_t sm_sl;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint8_t reserved;
};
LGV_PIN_SIZE(struct lgv_port_attr, 52);

#define LGV_GID_TYPE_IB 0u
#define LGV_GID_TYPE_ROCE_V1 1u
#define LGV_GID_TYPE_ROCE_V2 2u

struct lgv_gid_entry {
	uint32_t size;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type; /* LGV_GID_TYPE_*, others may come */
	uint32_t netdev_index; /* 0: none */
	uint8_t gid[16];
};
LGV_PIN_SIZE(struct lgv_gid_entry, 36);

struct lgv_clock {
	uint32_t size;
	uint32_t reserved;
	uint64_t raw; /* the device's free-running counter */
};
LGV_PIN_SIZE(struct lgv_clock, 16);

/**
 * lgv_device_list - the devices that the library enumerates.
 * @list: a null-terminated array; give it back with lgv_device_list_free().
 *
 * -ENOSYS: the kernel has no RDMA subsystem. An empty list is a success with @count 0.
 */
LGV_API int lgv_device_list(struct ibv_device ***list, uint32_t *count);

/** lgv_device_list_free - gives the array back; devices that were not opened are gone with it. */
LGV_API int lgv_device_list_free(struct ibv_device **list);

/** lgv_device_info - what is known of a device without opening it. */
LGV_API int lgv_device_info(struct ibv_device *device, struct lgv_device_info *info);

/** lgv_context_open - opens a device. -ENOENT, -EACCES, -EPERM: its node is missing or can't be opened. */
LGV_API int lgv_context_open(struct ibv_device *device, struct ibv_context **context);

/** lgv_context_close - closes it; descriptors and pages that depend on it are gone whatever the answer is. */
LGV_API int lgv_context_close(struct ibv_context *context);

LGV_API int lgv_context_info(struct ibv_context *context, struct lgv_context_info *info);
LGV_API int lgv_device_query(struct ibv_context *context, struct lgv_device_attr *attr);
LGV_API int lgv_port_query(struct ibv_context *context, uint8_t port, struct lgv_port_attr *attr);

/**
 * lgv_gid_query - one entry of a port's GID table, with its type and network interface.
 *
 * -ENODATA: the entry is empty. -EOPNOTSUPP: the library can't tell types; lgv_gid_raw_query() gives the bare GID.
 */
LGV_API int lgv_gid_query(struct ibv_context *context, uint8_t port, uint32_t index, struct lgv_gid_entry *entry);

/** lgv_gid_raw_query - the sixteen bytes of one entry, zero if it is empty. */
LGV_API int lgv_gid_raw_query(struct ibv_context *context, uint8_t port, uint32_t index, uint8_t gid[16]);

/** lgv_pkey_query - one entry of a port's partition key table; @pkey in host order. */
LGV_API int lgv_pkey_query(struct ibv_context *context, uint8_t port, uint32_t index, uint16_t *pkey);

/** lgv_clock_query - the device's counter now. -EOPNOTSUPP where it has none that can be read. */
LGV_API int lgv_clock_query(struct ibv_context *context, struct lgv_clock *clock);

#define LGV_FORK_DISABLED 0u
#define LGV_FORK_ENABLED 1u
#define LGV_FORK_UNNEEDED 2u

/** lgv_fork_status - whether registered pages survive a fork; @status is one of LGV_FORK_*. */
LGV_API int lgv_fork_status(uint32_t *status);

/* ---- asynchronous events (async.c) ---------------------------------------------------------------------------- */

#define LGV_EVENT_ON_DEVICE 0u
#define LGV_EVENT_ON_PORT 1u
#define LGV_EVENT_ON_CQ 2u
#define LGV_EVENT_ON_QP 3u
#define LGV_EVENT_ON_OTHER 4u

struct lgv_async_event {
	uint32_t size;
	uint32_t type; /* the library's event type; new ones may come */
	uint32_t subject; /* LGV_EVENT_ON_* */
	uint32_t port; /* with LGV_EVENT_ON_PORT */
	uint64_t object; /* address of the object, for comparison and for the acknowledgement */
};
LGV_PIN_SIZE(struct lgv_async_event, 24);

/**
 * lgv_async_event_get - takes the next event.
 *
 * Waits, unless the context's async_fd doesn't block: then -EAGAIN. Each event must be acknowledged: the destroy call
 * of the object it is about waits for that.
 */
LGV_API int lgv_async_event_get(struct ibv_context *context, struct lgv_async_event *event);
LGV_API int lgv_async_event_ack(const struct lgv_async_event *event);

/* ---- protection domains (pd.c) -------------------------------------------------------------------------------- */

LGV_API int lgv_pd_alloc(struct ibv_context *context, struct ibv_pd **pd);

/** lgv_pd_dealloc - -EBUSY: a region, window, queue pair or address handle of it lives; nothing was done. */
LGV_API int lgv_pd_dealloc(struct ibv_pd *pd);
LGV_API int lgv_pd_handle(struct ibv_pd *pd, uint32_t *handle);

/* ---- memory regions (mr.c) ------------------------------------------------------------------------------------ */

#define LGV_ACCESS_LOCAL_WRITE (1u << 0)
#define LGV_ACCESS_REMOTE_WRITE (1u << 1)
#define LGV_ACCESS_REMOTE_READ (1u << 2)
#define LGV_ACCESS_REMOTE_ATOMIC (1u << 3)
#define LGV_ACCESS_MW_BIND (1u << 4)
#define LGV_ACCESS_ZERO_BASED (1u << 5)
#define LGV_ACCESS_ON_DEMAND (1u << 6)
#define LGV_ACCESS_HUGETLB (1u << 7)
#define LGV_ACCESS_RELAXED_ORDERING (1u << 20)
#define LGV_ACCESS_ALL 0x001000ffu

struct lgv_mr_reg {
	uint32_t size;
	uint32_t access; /* LGV_ACCESS_* */
	uint64_t addr;
	uint64_t length;
	uint64_t iova; /* the address that peers use; addr for the usual registration */
	int32_t dmabuf_fd; /* lgv_mr_reg_dmabuf() only; addr is then the offset in the buffer */
	uint32_t reserved;
};
LGV_PIN_SIZE(struct lgv_mr_reg, 40);

struct lgv_mr_info {
	uint32_t size;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
	uint64_t addr;
	uint64_t length;
};
LGV_PIN_SIZE(struct lgv_mr_info, 32);

/**
 * lgv_mr_reg - registers memory.
 *
 * -ENOMEM: no memory or, more often, the limit on locked memory. -EFAULT: not mapped, or not writable as asked.
 * The memory must stay mapped until lgv_mr_dereg() has given 0.
 */
LGV_API int lgv_mr_reg(struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr);

/** lgv_mr_reg_dmabuf - registers another device's buffer. Optional: LGV_OPTIONAL_DMABUF. */
LGV_API int lgv_mr_reg_dmabuf(struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr);

/** lgv_mr_dereg - -EBUSY or -EINVAL, by driver: a window is bound to it; nothing was done. */
LGV_API int lgv_mr_dereg(struct ibv_mr *mr);
LGV_API int lgv_mr_info(struct ibv_mr *mr, struct lgv_mr_info *info);

/* ---- memory windows (mw.c) ------------------------------------------------------------------------------------ */

#define LGV_MW_TYPE_1 1u
#define LGV_MW_TYPE_2 2u

struct lgv_mw_info {
	uint32_t size;
	uint32_t handle;
	uint32_t rkey;
	uint32_t type;
};
LGV_PIN_SIZE(struct lgv_mw_info, 16);

struct lgv_mw_bind {
	uint32_t size;
	uint32_t access; /* LGV_ACCESS_* */
	uint64_t wr_id;
	struct ibv_mr *mr;
	uint64_t addr;
	uint64_t length;
	uint32_t send_flags; /* LGV_SEND_* */
	uint32_t reserved;
};
LGV_PIN_SIZE(struct lgv_mw_bind, 48);

LGV_API int lgv_mw_alloc(struct ibv_pd *pd, uint32_t type, struct ibv_mw **mw);
LGV_API int lgv_mw_dealloc(struct ibv_mw *mw);
LGV_API int lgv_mw_info(struct ibv_mw *mw, struct lgv_mw_info *info);

/** lgv_mw_bind - posts a bind of a window of type 1; those of type 2 are bound by lgv_qp_post_send(). */
LGV_API int lgv_mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, const struct lgv_mw_bind *bind);

/** lgv_rkey_next - the key that the next bind of a window of type 2 should use: its low eight bits are counted up. */
LGV_API uint32_t lgv_rkey_next(uint32_t rkey);

/* ---- completion channels (channel.c) -------------------------------------------------------------------------- */

LGV_API int lgv_channel_create(struct ibv_context *context, struct ibv_comp_channel **channel);

/** lgv_channel_destroy - -EBUSY: a completion queue uses it; nothing was done. */
LGV_API int lgv_channel_destroy(struct ibv_comp_channel *channel);
LGV_API int lgv_channel_fd(struct ibv_comp_channel *channel, int32_t *fd);

/**
 * lgv_channel_event_get - takes the next event; @cq is the queue it is about, @token the one given at its creation.
 *
 * Waits, unless the channel's descriptor doesn't block: then -EAGAIN. Each event must be acknowledged with
 * lgv_cq_events_ack(): the destroy call of the queue waits for that.
 */
LGV_API int lgv_channel_event_get(struct ibv_comp_channel *channel, struct ibv_cq **cq, uint64_t *token);

/* ---- completion queues (cq.c) --------------------------------------------------------------------------------- */

struct lgv_cq_create {
	uint32_t size;
	uint32_t cqe; /* at least this many entries */
	struct ibv_comp_channel *channel; /* or null */
	uint64_t token; /* comes back with the events of the channel */
	uint32_t comp_vector;
	uint32_t wc_flags; /* lgv_cq_ex_create() only: LGV_WC_EX_* */
};
LGV_PIN_SIZE(struct lgv_cq_create, 32);

struct lgv_cq_info {
	uint32_t size;
	uint32_t handle;
	uint32_t cqe; /* entries there are */
	uint32_t reserved;
};
LGV_PIN_SIZE(struct lgv_cq_info, 16);

#define LGV_WC_RECV (1u << 7) /* in opcode: a receive */

#define LGV_WC_GRH (1u << 0)
#define LGV_WC_WITH_IMM (1u << 1)
#define LGV_WC_IP_CSUM_OK (1u << 2)
#define LGV_WC_WITH_INV (1u << 3)

/* Laid out as the library's own completion, so that a poll writes it in place. */
struct lgv_wc {
	uint64_t wr_id;
	uint32_t status; /* 0: success; on others only wr_id, status, qp_num and vendor_err mean something */
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_or_rkey; /* network order for immediate data */
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags; /* LGV_WC_* */
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint8_t reserved[2];
};
LGV_PIN_SIZE(struct lgv_wc, 48);

#define LGV_WC_EX_BYTE_LEN (1u << 0)
#define LGV_WC_EX_IMM (1u << 1)
#define LGV_WC_EX_QP_NUM (1u << 2)
#define LGV_WC_EX_SRC_QP (1u << 3)
#define LGV_WC_EX_TIMESTAMP (1u << 7) /* free-running counter of the device */
#define LGV_WC_EX_CVLAN (1u << 8)
#define LGV_WC_EX_TIMESTAMP_WALLCLOCK (1u << 11) /* real time of the device, ns */
#define LGV_WC_EX_ALL 0x0000098fu

struct lgv_wc_ex {
	uint64_t wr_id;
	uint64_t timestamp; /* what was asked for at creation; 0 else */
	uint64_t wallclock_ns;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_or_rkey;
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint16_t cvlan;
	uint16_t reserved[3];
};
LGV_PIN_SIZE(struct lgv_wc_ex, 64);

LGV_API int lgv_cq_create(struct ibv_context *context, const struct lgv_cq_create *create, struct ibv_cq **cq);

/**
 * lgv_cq_ex_create - a queue whose completions carry more. -EOPNOTSUPP: the device can't give what wc_flags ask.
 *
 * @cq is the same queue under its plain type: it is destroyed, armed and acknowledged by that.
 */
LGV_API int lgv_cq_ex_create(struct ibv_context *context, const struct lgv_cq_create *create, struct ibv_cq_ex **cq_ex,
			     struct ibv_cq **cq);

/**
 * lgv_cq_destroy - -EBUSY: a queue pair uses it; nothing was done.
 *
 * Waits until every event that was taken for the queue has been acknowledged.
 */
LGV_API int lgv_cq_destroy(struct ibv_cq *cq);
LGV_API int lgv_cq_info(struct ibv_cq *cq, struct lgv_cq_info *info);

/**
 * lgv_cq_poll - takes up to @capacity completions; the result is how many.
 * @wc_size: sizeof(struct lgv_wc).
 *
 * -EIO: the queue is broken, for example overrun. No lock of the shim's own, no allocation, no copy.
 */
LGV_API int lgv_cq_poll(struct ibv_cq *cq, struct lgv_wc *wc, uint32_t wc_size, uint32_t capacity);

#define LGV_POLL_BATCH (1u << 0)
#define LGV_POLL_ALL 0x00000001u

/**
 * lgv_cq_ex_poll - the same for a queue of lgv_cq_ex_create(). One thread at a time.
 * @wc_flags: those of its creation; only their fields are read from the device.
 * @poll_flags: LGV_POLL_BATCH takes all completions under one lock of the driver. Not for rxe: there the end of a poll
 *	that has found the queue empty counts one completion more than came (rdma-core 44 and others, #1512 there). Without
 *	the flag each completion is a poll of its own, which is right everywhere and costs a lock each.
 */
LGV_API int lgv_cq_ex_poll(struct ibv_cq_ex *cq, uint32_t wc_flags, uint32_t poll_flags, struct lgv_wc_ex *wc,
			   uint32_t wc_size, uint32_t capacity);

/** lgv_cq_notify - asks for one event at the next completion; @solicited_only is 0 or 1. */
LGV_API int lgv_cq_notify(struct ibv_cq *cq, uint32_t solicited_only);

/** lgv_cq_events_ack - acknowledges @count events taken from the channel. Takes a lock: do many at once. */
LGV_API int lgv_cq_events_ack(struct ibv_cq *cq, uint32_t count);

/* ---- address handles (ah.c) ----------------------------------------------------------------------------------- */

struct lgv_ah_attr {
	uint32_t size;
	uint32_t flow_label;
	uint8_t dgid[16];
	uint16_t dlid;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global; /* 0 or 1 */
	uint8_t port_num;
	uint8_t reserved[2];
};
LGV_PIN_SIZE(struct lgv_ah_attr, 36);

LGV_API int lgv_ah_create(struct ibv_pd *pd, const struct lgv_ah_attr *attr, struct ibv_ah **ah);
LGV_API int lgv_ah_destroy(struct ibv_ah *ah);

/* ---- queue pairs (qp.c) --------------------------------------------------------------------------------------- */

#define LGV_QPT_RC 2u
#define LGV_QPT_UC 3u
#define LGV_QPT_UD 4u
#define LGV_QPT_RAW_PACKET 8u

#define LGV_QP_CREATE_BLOCK_SELF_MCAST_LB (1u << 1)
#define LGV_QP_CREATE_SCATTER_FCS (1u << 8)
#define LGV_QP_CREATE_CVLAN_STRIPPING (1u << 9)
#define LGV_QP_CREATE_ALL 0x00000302u

struct lgv_qp_create {
	uint32_t size;
	uint32_t qp_type; /* LGV_QPT_* */
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
	uint32_t create_flags; /* LGV_QP_CREATE_* */
	uint32_t signal_all; /* 0 or 1 */
	uint32_t reserved;
};
LGV_PIN_SIZE(struct lgv_qp_create, 56);

struct lgv_qp_info {
	uint32_t size;
	uint32_t qp_num;
	uint32_t handle;
	uint32_t qp_type;
	uint32_t max_send_wr; /* as granted, at least what was asked for */
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
	uint32_t reserved;
};
LGV_PIN_SIZE(struct lgv_qp_info, 40);

#define LGV_QPS_RESET 0u
#define LGV_QPS_INIT 1u
#define LGV_QPS_RTR 2u
#define LGV_QPS_RTS 3u
#define LGV_QPS_SQD 4u
#define LGV_QPS_SQE 5u
#define LGV_QPS_ERR 6u

#define LGV_QP_STATE (1u << 0)
#define LGV_QP_CUR_STATE (1u << 1)
#define LGV_QP_ACCESS_FLAGS (1u << 3)
#define LGV_QP_PKEY_INDEX (1u << 4)
#define LGV_QP_PORT (1u << 5)
#define LGV_QP_QKEY (1u << 6)
#define LGV_QP_AV (1u << 7)
#define LGV_QP_PATH_MTU (1u << 8)
#define LGV_QP_TIMEOUT (1u << 9)
#define LGV_QP_RETRY_CNT (1u << 10)
#define LGV_QP_RNR_RETRY (1u << 11)
#define LGV_QP_RQ_PSN (1u << 12)
#define LGV_QP_MAX_QP_RD_ATOMIC (1u << 13)
#define LGV_QP_MIN_RNR_TIMER (1u << 15)
#define LGV_QP_SQ_PSN (1u << 16)
#define LGV_QP_MAX_DEST_RD_ATOMIC (1u << 17)
#define LGV_QP_DEST_QPN (1u << 20)
#define LGV_QP_ALL 0x0013bffbu

struct lgv_qp_attr {
	uint32_t size;
	uint32_t qp_state; /* LGV_QPS_* */
	uint32_t cur_qp_state;
	uint32_t path_mtu; /* 1 to 5 */
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	uint32_t access; /* LGV_ACCESS_* */
	struct lgv_ah_attr ah; /* its own size is set with LGV_QP_AV only */
	uint16_t pkey_index;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t reserved[3];
};
LGV_PIN_SIZE(struct lgv_qp_attr, 84);

struct lgv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};
LGV_PIN_SIZE(struct lgv_sge, 16);

/* Laid out as the library's own request. `link` is the shim's: it chains the array in place. */
struct lgv_recv_wr {
	uint64_t wr_id;
	uint64_t link;
	const struct lgv_sge *sg_list;
	uint32_t num_sge;
	uint32_t reserved;
};
LGV_PIN_SIZE(struct lgv_recv_wr, 32);

#define LGV_WR_RDMA_WRITE 0u
#define LGV_WR_RDMA_WRITE_WITH_IMM 1u
#define LGV_WR_SEND 2u
#define LGV_WR_SEND_WITH_IMM 3u
#define LGV_WR_RDMA_READ 4u
#define LGV_WR_ATOMIC_CMP_AND_SWP 5u
#define LGV_WR_ATOMIC_FETCH_AND_ADD 6u
#define LGV_WR_LOCAL_INV 7u
#define LGV_WR_BIND_MW 8u
#define LGV_WR_SEND_WITH_INV 9u

#define LGV_SEND_FENCE (1u << 0)
#define LGV_SEND_SIGNALED (1u << 1)
#define LGV_SEND_SOLICITED (1u << 2)
#define LGV_SEND_INLINE (1u << 3)
#define LGV_SEND_IP_CSUM (1u << 4)
#define LGV_SEND_ALL 0x0000001fu

struct lgv_send_wr {
	uint64_t wr_id;
	const struct lgv_sge *sg_list;
	uint32_t num_sge;
	uint32_t opcode; /* LGV_WR_* */
	uint32_t send_flags; /* LGV_SEND_* */
	uint32_t imm_or_rkey; /* immediate data in network order; the key to invalidate; a window's new key */
	uint64_t remote_addr;
	uint64_t compare_add; /* atomics */
	uint64_t swap;
	uint32_t rkey;
	uint32_t remote_qpn; /* datagrams, with ah */
	uint32_t remote_qkey;
	uint32_t bind_access; /* LGV_ACCESS_* of a window */
	struct ibv_ah *ah;
	struct ibv_mw *mw; /* binds */
	struct ibv_mr *bind_mr;
	uint64_t bind_addr;
	uint64_t bind_length;
};
LGV_PIN_SIZE(struct lgv_send_wr, 112);

/**
 * lgv_qp_create - makes a queue pair and tells what was granted.
 *
 * -EPERM: a raw packet queue without CAP_NET_RAW. -EOPNOTSUPP: the device has no such type. -ENOMEM, -EINVAL: over a
 * limit of the device, by driver.
 */
LGV_API int lgv_qp_create(struct ibv_pd *pd, const struct lgv_qp_create *create, struct lgv_qp_info *info,
			  struct ibv_qp **qp);

/** lgv_qp_modify - @mask of LGV_QP_* says which fields of @attr count. */
LGV_API int lgv_qp_modify(struct ibv_qp *qp, const struct lgv_qp_attr *attr, uint32_t mask);

/** lgv_qp_query - reads the fields that @mask names; the driver may fill in others too. */
LGV_API int lgv_qp_query(struct ibv_qp *qp, uint32_t mask, struct lgv_qp_attr *attr);

/**
 * lgv_qp_destroy - -EBUSY: attached to a multicast group; nothing was done. Other errors prove nothing.
 *
 * Waits until every asynchronous event that was taken for it has been acknowledged.
 */
LGV_API int lgv_qp_destroy(struct ibv_qp *qp);

/**
 * lgv_qp_post_send - posts @count requests in order, up to the first that is refused.
 * @wr_size: sizeof(struct lgv_send_wr).
 * @posted: written always: how many are with the device. On an error this is the index of the refused request.
 *
 * Nothing is posted if a request has an unknown flag or opcode. -ENOMEM: the queue is full. Buffers and the lists of
 * their pieces: lists may be reused at once, buffers when the completion has come; with LGV_SEND_INLINE at once.
 */
LGV_API int lgv_qp_post_send(struct ibv_qp *qp, const struct lgv_send_wr *wr, uint32_t wr_size, uint32_t count,
			     uint32_t *posted);

/** lgv_qp_post_recv - the same for receives. The requests are chained in place, which is why they are not const. */
LGV_API int lgv_qp_post_recv(struct ibv_qp *qp, struct lgv_recv_wr *wr, uint32_t wr_size, uint32_t count,
			     uint32_t *posted);

/* ---- flow rules (flow.c) -------------------------------------------------------------------------------------- */

#define LGV_FLOW_NORMAL 0u
#define LGV_FLOW_ALL_DEFAULT 1u
#define LGV_FLOW_MC_DEFAULT 2u
#define LGV_FLOW_SNIFFER 3u

#define LGV_FLOW_LAYER_ETH (1u << 0)
#define LGV_FLOW_LAYER_IPV4 (1u << 1)
#define LGV_FLOW_LAYER_IPV6 (1u << 2)
#define LGV_FLOW_LAYER_UDP (1u << 3)
#define LGV_FLOW_LAYER_TCP (1u << 4)
#define LGV_FLOW_LAYER_ALL 0x0000001fu

#define LGV_FLOW_DONT_TRAP (1u << 1)

/* All numbers in network order. IPv4 addresses stand in the first four bytes. */
struct lgv_flow_match {
	uint8_t dst_mac[6];
	uint8_t src_mac[6];
	uint16_t ether_type;
	uint16_t vlan_tag; /* priority 3 bits, DEI 1, VLAN id 12 */
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint32_t flow_label; /* IPv6 */
	uint16_t src_port;
	uint16_t dst_port;
	uint8_t next_header; /* IPv6 */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t reserved;
};
LGV_PIN_SIZE(struct lgv_flow_match, 60);

struct lgv_flow_create {
	uint32_t size;
	uint32_t type; /* LGV_FLOW_* */
	uint32_t layers; /* LGV_FLOW_LAYER_*: which parts of value and mask count; 0 for the default rules */
	uint32_t flags; /* LGV_FLOW_DONT_TRAP */
	uint16_t priority; /* 0 is highest */
	uint8_t port;
	uint8_t reserved;
	struct lgv_flow_match value;
	struct lgv_flow_match mask;
};
LGV_PIN_SIZE(struct lgv_flow_create, 140);

/**
 * lgv_flow_create - steers matching packets to a raw packet queue.
 *
 * -EEXIST: the same rule is there already. -EOPNOTSUPP: the device doesn't steer, or not by these layers. -EPERM:
 * CAP_NET_RAW is missing. -ENOMEM: the device's table is full.
 */
LGV_API int lgv_flow_create(struct ibv_qp *qp, const struct lgv_flow_create *create, struct ibv_flow **flow);
LGV_API int lgv_flow_destroy(struct ibv_flow *flow);
LGV_API int lgv_flow_handle(struct ibv_flow *flow, uint32_t *handle);

/* ---- multicast (mcast.c) -------------------------------------------------------------------------------------- */

/** lgv_mcast_attach - lets a datagram queue receive a group. -EINVAL: no multicast GID, or another type of queue. */
LGV_API int lgv_mcast_attach(struct ibv_qp *qp, const uint8_t gid[16], uint16_t lid);
LGV_API int lgv_mcast_detach(struct ibv_qp *qp, const uint8_t gid[16], uint16_t lid);

#ifdef __cplusplus
}
#endif

#endif /* LOCKGATE_VERBS_H */
