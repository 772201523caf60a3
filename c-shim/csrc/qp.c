// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Queue pairs: their life and what is posted to them.
 */
#include "ah.h"

LGV_SAME(LGV_QPT_RC, IBV_QPT_RC);
LGV_SAME(LGV_QPT_UC, IBV_QPT_UC);
LGV_SAME(LGV_QPT_UD, IBV_QPT_UD);
LGV_SAME(LGV_QPT_RAW_PACKET, IBV_QPT_RAW_PACKET);
LGV_SAME(LGV_QP_CREATE_BLOCK_SELF_MCAST_LB, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
LGV_SAME(LGV_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_SCATTER_FCS);
LGV_SAME(LGV_QP_CREATE_CVLAN_STRIPPING, IBV_QP_CREATE_CVLAN_STRIPPING);
LGV_SAME(LGV_QPS_RESET, IBV_QPS_RESET);
LGV_SAME(LGV_QPS_INIT, IBV_QPS_INIT);
LGV_SAME(LGV_QPS_RTR, IBV_QPS_RTR);
LGV_SAME(LGV_QPS_RTS, IBV_QPS_RTS);
LGV_SAME(LGV_QPS_SQD, IBV_QPS_SQD);
LGV_SAME(LGV_QPS_SQE, IBV_QPS_SQE);
LGV_SAME(LGV_QPS_ERR, IBV_QPS_ERR);
LGV_SAME(LGV_QP_STATE, IBV_QP_STATE);
LGV_SAME(LGV_QP_CUR_STATE, IBV_QP_CUR_STATE);
LGV_SAME(LGV_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS);
LGV_SAME(LGV_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX);
LGV_SAME(LGV_QP_PORT, IBV_QP_PORT);
LGV_SAME(LGV_QP_QKEY, IBV_QP_QKEY);
LGV_SAME(LGV_QP_AV, IBV_QP_AV);
LGV_SAME(LGV_QP_PATH_MTU, IBV_QP_PATH_MTU);
LGV_SAME(LGV_QP_TIMEOUT, IBV_QP_TIMEOUT);
LGV_SAME(LGV_QP_RETRY_CNT, IBV_QP_RETRY_CNT);
LGV_SAME(LGV_QP_RNR_RETRY, IBV_QP_RNR_RETRY);
LGV_SAME(LGV_QP_RQ_PSN, IBV_QP_RQ_PSN);
LGV_SAME(LGV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC);
LGV_SAME(LGV_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
LGV_SAME(LGV_QP_SQ_PSN, IBV_QP_SQ_PSN);
LGV_SAME(LGV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC);
LGV_SAME(LGV_QP_DEST_QPN, IBV_QP_DEST_QPN);
LGV_SAME(LGV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE);
LGV_SAME(LGV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
LGV_SAME(LGV_WR_SEND, IBV_WR_SEND);
LGV_SAME(LGV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM);
LGV_SAME(LGV_WR_RDMA_READ, IBV_WR_RDMA_READ);
LGV_SAME(LGV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP);
LGV_SAME(LGV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD);
LGV_SAME(LGV_WR_LOCAL_INV, IBV_WR_LOCAL_INV);
LGV_SAME(LGV_WR_BIND_MW, IBV_WR_BIND_MW);
LGV_SAME(LGV_WR_SEND_WITH_INV, IBV_WR_SEND_WITH_INV);
LGV_SAME(LGV_SEND_FENCE, IBV_SEND_FENCE);
LGV_SAME(LGV_SEND_SIGNALED, IBV_SEND_SIGNALED);
LGV_SAME(LGV_SEND_SOLICITED, IBV_SEND_SOLICITED);
LGV_SAME(LGV_SEND_INLINE, IBV_SEND_INLINE);
LGV_SAME(LGV_SEND_IP_CSUM, IBV_SEND_IP_CSUM);

/* Receives are chained where they lie, and the lists of pieces are handed on. */
_Static_assert(sizeof(struct lgv_recv_wr) == sizeof(struct ibv_recv_wr), "size of a receive");
LGV_SAME_PLACE(struct lgv_recv_wr, wr_id, struct ibv_recv_wr, wr_id);
LGV_SAME_PLACE(struct lgv_recv_wr, link, struct ibv_recv_wr, next);
LGV_SAME_PLACE(struct lgv_recv_wr, sg_list, struct ibv_recv_wr, sg_list);
LGV_SAME_PLACE(struct lgv_recv_wr, num_sge, struct ibv_recv_wr, num_sge);
_Static_assert(sizeof(struct lgv_sge) == sizeof(struct ibv_sge), "size of a piece");
LGV_SAME_PLACE(struct lgv_sge, addr, struct ibv_sge, addr);
LGV_SAME_PLACE(struct lgv_sge, length, struct ibv_sge, length);
LGV_SAME_PLACE(struct lgv_sge, lkey, struct ibv_sge, lkey);

static int known_type(uint32_t type)
{
	return type == LGV_QPT_RC || type == LGV_QPT_UC || type == LGV_QPT_UD || type == LGV_QPT_RAW_PACKET;
}

int lgv_qp_create(struct ibv_pd *pd, const struct lgv_qp_create *create, struct lgv_qp_info *info, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr_ex ex;
	struct ibv_qp_init_attr plain;
	struct ibv_qp_cap *granted;
	struct ibv_qp *made;

	if (!pd || !qp || !LGV_SIZED(create) || !LGV_SIZED(info) || !known_type(create->qp_type) ||
	    create->create_flags & ~LGV_QP_CREATE_ALL || create->signal_all > 1 || create->reserved)
		return -EINVAL;
	memset(&plain, 0, sizeof(plain));
	plain.send_cq = create->send_cq;
	plain.recv_cq = create->recv_cq;
	plain.cap.max_send_wr = create->max_send_wr;
	plain.cap.max_recv_wr = create->max_recv_wr;
	plain.cap.max_send_sge = create->max_send_sge;
	plain.cap.max_recv_sge = create->max_recv_sge;
	plain.cap.max_inline_data = create->max_inline_data;
	plain.qp_type = (enum ibv_qp_type)create->qp_type;
	plain.sq_sig_all = (int)create->signal_all;
	errno = 0;
	if (create->create_flags) {
		memset(&ex, 0, sizeof(ex));
		ex.send_cq = plain.send_cq;
		ex.recv_cq = plain.recv_cq;
		ex.cap = plain.cap;
		ex.qp_type = plain.qp_type;
		ex.sq_sig_all = plain.sq_sig_all;
		ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
		ex.pd = pd;
		ex.create_flags = create->create_flags;
		made = ibv_create_qp_ex(pd->context, &ex);
		granted = &ex.cap;
	} else {
		/* Older drivers have only this one. */
		made = ibv_create_qp(pd, &plain);
		granted = &plain.cap;
	}
	if (!made)
		return lgv_failed();
	info->qp_num = made->qp_num;
	info->handle = made->handle;
	info->qp_type = create->qp_type;
	info->max_send_wr = granted->max_send_wr;
	info->max_recv_wr = granted->max_recv_wr;
	info->max_send_sge = granted->max_send_sge;
	info->max_recv_sge = granted->max_recv_sge;
	info->max_inline_data = granted->max_inline_data;
	info->reserved = 0;
	*qp = made;
	return 0;
}

int lgv_qp_modify(struct ibv_qp *qp, const struct lgv_qp_attr *attr, uint32_t mask)
{
	struct ibv_qp_attr request;
	int rc;

	if (!qp || !LGV_SIZED(attr) || mask & ~LGV_QP_ALL || attr->access & ~LGV_ACCESS_ALL ||
	    attr->qp_state > LGV_QPS_ERR || attr->cur_qp_state > LGV_QPS_ERR || attr->reserved[0] ||
	    attr->reserved[1] || attr->reserved[2])
		return -EINVAL;
	memset(&request, 0, sizeof(request));
	if (mask & LGV_QP_AV) {
		rc = lgv_ah_to_verbs(&attr->ah, &request.ah_attr);
		if (rc)
			return rc;
	}
	request.qp_state = (enum ibv_qp_state)attr->qp_state;
	request.cur_qp_state = (enum ibv_qp_state)attr->cur_qp_state;
	request.path_mtu = (enum ibv_mtu)attr->path_mtu;
	request.qkey = attr->qkey;
	request.rq_psn = attr->rq_psn;
	request.sq_psn = attr->sq_psn;
	request.dest_qp_num = attr->dest_qp_num;
	request.qp_access_flags = attr->access;
	request.pkey_index = attr->pkey_index;
	request.max_rd_atomic = attr->max_rd_atomic;
	request.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	request.min_rnr_timer = attr->min_rnr_timer;
	request.port_num = attr->port_num;
	request.timeout = attr->timeout;
	request.retry_cnt = attr->retry_cnt;
	request.rnr_retry = attr->rnr_retry;
	errno = 0;
	return lgv_result(ibv_modify_qp(qp, &request, (int)mask));
}

int lgv_qp_query(struct ibv_qp *qp, uint32_t mask, struct lgv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr found;
	int rc;

	if (!qp || !LGV_SIZED(attr) || mask & ~LGV_QP_ALL)
		return -EINVAL;
	memset(&found, 0, sizeof(found));
	memset(&init, 0, sizeof(init));
	errno = 0;
	rc = lgv_result(ibv_query_qp(qp, &found, (int)mask, &init));
	if (rc)
		return rc;
	attr->qp_state = (uint32_t)found.qp_state;
	attr->cur_qp_state = (uint32_t)found.cur_qp_state;
	attr->path_mtu = (uint32_t)found.path_mtu;
	attr->qkey = found.qkey;
	attr->rq_psn = found.rq_psn;
	attr->sq_psn = found.sq_psn;
	attr->dest_qp_num = found.dest_qp_num;
	attr->access = found.qp_access_flags;
	lgv_ah_from_verbs(&found.ah_attr, &attr->ah);
	attr->pkey_index = found.pkey_index;
	attr->max_rd_atomic = found.max_rd_atomic;
	attr->max_dest_rd_atomic = found.max_dest_rd_atomic;
	attr->min_rnr_timer = found.min_rnr_timer;
	attr->port_num = found.port_num;
	attr->timeout = found.timeout;
	attr->retry_cnt = found.retry_cnt;
	attr->rnr_retry = found.rnr_retry;
	memset(attr->reserved, 0, sizeof(attr->reserved));
	return 0;
}

int lgv_qp_destroy(struct ibv_qp *qp)
{
	if (!qp)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_destroy_qp(qp));
}

static int known_send(const struct lgv_send_wr *wr)
{
	return wr->opcode <= LGV_WR_SEND_WITH_INV && !(wr->send_flags & ~LGV_SEND_ALL) &&
	       !(wr->bind_access & ~LGV_ACCESS_ALL) && wr->num_sge <= INT_MAX &&
	       (wr->opcode != LGV_WR_BIND_MW || wr->mw);
}

static void send_to_verbs(const struct lgv_send_wr *wr, struct ibv_send_wr *out)
{
	memset(out, 0, sizeof(*out));
	out->wr_id = wr->wr_id;
	out->sg_list = (struct ibv_sge *)wr->sg_list;
	out->num_sge = (int)wr->num_sge;
	out->opcode = (enum ibv_wr_opcode)wr->opcode;
	out->send_flags = wr->send_flags;
	switch (wr->opcode) {
	case LGV_WR_ATOMIC_CMP_AND_SWP:
	case LGV_WR_ATOMIC_FETCH_AND_ADD:
		out->wr.atomic.remote_addr = wr->remote_addr;
		out->wr.atomic.compare_add = wr->compare_add;
		out->wr.atomic.swap = wr->swap;
		out->wr.atomic.rkey = wr->rkey;
		break;
	case LGV_WR_BIND_MW:
		out->bind_mw.mw = wr->mw;
		out->bind_mw.rkey = wr->imm_or_rkey;
		out->bind_mw.bind_info.mr = wr->bind_mr;
		out->bind_mw.bind_info.addr = wr->bind_addr;
		out->bind_mw.bind_info.length = wr->bind_length;
		out->bind_mw.bind_info.mw_access_flags = wr->bind_access;
		break;
	case LGV_WR_RDMA_WRITE:
	case LGV_WR_RDMA_WRITE_WITH_IMM:
	case LGV_WR_RDMA_READ:
		out->invalidate_rkey = wr->imm_or_rkey;
		out->wr.rdma.remote_addr = wr->remote_addr;
		out->wr.rdma.rkey = wr->rkey;
		break;
	default:
		out->invalidate_rkey = wr->imm_or_rkey;
		if (wr->ah) {
			out->wr.ud.ah = wr->ah;
			out->wr.ud.remote_qpn = wr->remote_qpn;
			out->wr.ud.remote_qkey = wr->remote_qkey;
		}
		break;
	}
}

/* So many requests are chained at a time: the chain lies on the stack, 2 KiB. */
#define SEND_CHAIN 16u

int lgv_qp_post_send(struct ibv_qp *qp, const struct lgv_send_wr *wr, uint32_t wr_size, uint32_t count,
		     uint32_t *posted)
{
	struct ibv_send_wr chain[SEND_CHAIN];
	struct ibv_send_wr *bad;
	uint32_t done = 0;
	int rc;

	if (!posted)
		return -EINVAL;
	*posted = 0;
	if (!qp || (!wr && count) || wr_size != sizeof(*wr))
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		if (!known_send(&wr[i]))
			return -EINVAL;
	}
	while (done < count) {
		uint32_t part = count - done < SEND_CHAIN ? count - done : SEND_CHAIN;

		for (uint32_t i = 0; i < part; i++) {
			send_to_verbs(&wr[done + i], &chain[i]);
			chain[i].next = i + 1 < part ? &chain[i + 1] : NULL;
		}
		bad = NULL;
		errno = 0;
		rc = lgv_result(ibv_post_send(qp, chain, &bad));
		if (rc) {
			/* A driver that fails and names no request has posted none of this chain that it can tell. */
			*posted = done + (bad ? (uint32_t)(bad - chain) : 0);
			return rc;
		}
		done += part;
	}
	*posted = done;
	return 0;
}

int lgv_qp_post_recv(struct ibv_qp *qp, struct lgv_recv_wr *wr, uint32_t wr_size, uint32_t count, uint32_t *posted)
{
	struct ibv_recv_wr *chain = (struct ibv_recv_wr *)wr;
	struct ibv_recv_wr *bad = NULL;
	int rc;

	if (!posted)
		return -EINVAL;
	*posted = 0;
	if (!qp || (!wr && count) || wr_size != sizeof(*wr))
		return -EINVAL;
	if (count == 0)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		if (wr[i].num_sge > INT_MAX)
			return -EINVAL;
		chain[i].next = i + 1 < count ? &chain[i + 1] : NULL;
	}
	errno = 0;
	rc = lgv_result(ibv_post_recv(qp, chain, &bad));
	if (rc) {
		*posted = bad ? (uint32_t)(bad - chain) : 0;
		return rc;
	}
	*posted = count;
	return 0;
}
