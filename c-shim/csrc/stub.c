// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The link stub: what the archive holds where the build left the library out.
 *
 * Everything links, and everything refuses with -ELIBACC. This file must not include the library's headers: it is
 * compiled where there are none.
 */
#include <errno.h>
#include <stddef.h>

#include "lockgate_verbs.h"

/* A refusal looks at none of its arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

uint32_t lgv_link_mode(void)
{
	return LGV_LINK_STUB;
}

uint32_t lgv_link_optional(uint32_t verb)
{
	return 0;
}

int lgv_device_list(struct ibv_device ***list, uint32_t *count)
{
	return -ELIBACC;
}

int lgv_device_list_free(struct ibv_device **list)
{
	return -ELIBACC;
}

int lgv_device_info(struct ibv_device *device, struct lgv_device_info *info)
{
	return -ELIBACC;
}

int lgv_context_open(struct ibv_device *device, struct ibv_context **context)
{
	return -ELIBACC;
}

int lgv_context_close(struct ibv_context *context)
{
	return -ELIBACC;
}

int lgv_context_info(struct ibv_context *context, struct lgv_context_info *info)
{
	return -ELIBACC;
}

int lgv_device_query(struct ibv_context *context, struct lgv_device_attr *attr)
{
	return -ELIBACC;
}

int lgv_port_query(struct ibv_context *context, uint8_t port, struct lgv_port_attr *attr)
{
	return -ELIBACC;
}

int lgv_gid_query(struct ibv_context *context, uint8_t port, uint32_t index, struct lgv_gid_entry *entry)
{
	return -ELIBACC;
}

int lgv_gid_raw_query(struct ibv_context *context, uint8_t port, uint32_t index, uint8_t gid[16])
{
	return -ELIBACC;
}

int lgv_pkey_query(struct ibv_context *context, uint8_t port, uint32_t index, uint16_t *pkey)
{
	return -ELIBACC;
}

int lgv_clock_query(struct ibv_context *context, struct lgv_clock *clock)
{
	return -ELIBACC;
}

int lgv_fork_status(uint32_t *status)
{
	return -ELIBACC;
}

int lgv_async_event_get(struct ibv_context *context, struct lgv_async_event *event)
{
	return -ELIBACC;
}

int lgv_async_event_ack(const struct lgv_async_event *event)
{
	return -ELIBACC;
}

int lgv_pd_alloc(struct ibv_context *context, struct ibv_pd **pd)
{
	return -ELIBACC;
}

int lgv_pd_dealloc(struct ibv_pd *pd)
{
	return -ELIBACC;
}

int lgv_pd_handle(struct ibv_pd *pd, uint32_t *handle)
{
	return -ELIBACC;
}

int lgv_mr_reg(struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr)
{
	return -ELIBACC;
}

int lgv_mr_reg_dmabuf(struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr)
{
	return -ELIBACC;
}

int lgv_mr_dereg(struct ibv_mr *mr)
{
	return -ELIBACC;
}

int lgv_mr_info(struct ibv_mr *mr, struct lgv_mr_info *info)
{
	return -ELIBACC;
}

int lgv_mw_alloc(struct ibv_pd *pd, uint32_t type, struct ibv_mw **mw)
{
	return -ELIBACC;
}

int lgv_mw_dealloc(struct ibv_mw *mw)
{
	return -ELIBACC;
}

int lgv_mw_info(struct ibv_mw *mw, struct lgv_mw_info *info)
{
	return -ELIBACC;
}

int lgv_mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, const struct lgv_mw_bind *bind)
{
	return -ELIBACC;
}

uint32_t lgv_rkey_next(uint32_t rkey)
{
	return (rkey & ~0xffu) | ((rkey + 1) & 0xffu);
}

int lgv_channel_create(struct ibv_context *context, struct ibv_comp_channel **channel)
{
	return -ELIBACC;
}

int lgv_channel_destroy(struct ibv_comp_channel *channel)
{
	return -ELIBACC;
}

int lgv_channel_fd(struct ibv_comp_channel *channel, int32_t *fd)
{
	return -ELIBACC;
}

int lgv_channel_event_get(struct ibv_comp_channel *channel, struct ibv_cq **cq, uint64_t *token)
{
	return -ELIBACC;
}

int lgv_cq_create(struct ibv_context *context, const struct lgv_cq_create *create, struct ibv_cq **cq)
{
	return -ELIBACC;
}

int lgv_cq_ex_create(struct ibv_context *context, const struct lgv_cq_create *create, struct ibv_cq_ex **cq_ex,
		     struct ibv_cq **cq)
{
	return -ELIBACC;
}

int lgv_cq_destroy(struct ibv_cq *cq)
{
	return -ELIBACC;
}

int lgv_cq_info(struct ibv_cq *cq, struct lgv_cq_info *info)
{
	return -ELIBACC;
}

int lgv_cq_poll(struct ibv_cq *cq, struct lgv_wc *wc, uint32_t wc_size, uint32_t capacity)
{
	return -ELIBACC;
}

int lgv_cq_ex_poll(struct ibv_cq_ex *cq, uint32_t wc_flags, uint32_t poll_flags, struct lgv_wc_ex *wc, uint32_t wc_size,
		   uint32_t capacity)
{
	return -ELIBACC;
}

int lgv_cq_notify(struct ibv_cq *cq, uint32_t solicited_only)
{
	return -ELIBACC;
}

int lgv_cq_events_ack(struct ibv_cq *cq, uint32_t count)
{
	return -ELIBACC;
}

int lgv_ah_create(struct ibv_pd *pd, const struct lgv_ah_attr *attr, struct ibv_ah **ah)
{
	return -ELIBACC;
}

int lgv_ah_destroy(struct ibv_ah *ah)
{
	return -ELIBACC;
}

int lgv_qp_create(struct ibv_pd *pd, const struct lgv_qp_create *create, struct lgv_qp_info *info, struct ibv_qp **qp)
{
	return -ELIBACC;
}

int lgv_qp_modify(struct ibv_qp *qp, const struct lgv_qp_attr *attr, uint32_t mask)
{
	return -ELIBACC;
}

int lgv_qp_query(struct ibv_qp *qp, uint32_t mask, struct lgv_qp_attr *attr)
{
	return -ELIBACC;
}

int lgv_qp_destroy(struct ibv_qp *qp)
{
	return -ELIBACC;
}

int lgv_qp_post_send(struct ibv_qp *qp, const struct lgv_send_wr *wr, uint32_t wr_size, uint32_t count,
		     uint32_t *posted)
{
	if (posted)
		*posted = 0;
	return -ELIBACC;
}

int lgv_qp_post_recv(struct ibv_qp *qp, struct lgv_recv_wr *wr, uint32_t wr_size, uint32_t count, uint32_t *posted)
{
	if (posted)
		*posted = 0;
	return -ELIBACC;
}

int lgv_flow_create(struct ibv_qp *qp, const struct lgv_flow_create *create, struct ibv_flow **flow)
{
	return -ELIBACC;
}

int lgv_flow_destroy(struct ibv_flow *flow)
{
	return -ELIBACC;
}

int lgv_flow_handle(struct ibv_flow *flow, uint32_t *handle)
{
	return -ELIBACC;
}

int lgv_mcast_attach(struct ibv_qp *qp, const uint8_t gid[16], uint16_t lid)
{
	return -ELIBACC;
}

int lgv_mcast_detach(struct ibv_qp *qp, const uint8_t gid[16], uint16_t lid)
{
	return -ELIBACC;
}
