// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Completion queues, plain and extended.
 */
#include "shim.h"

/* The poll hands the caller's array to the driver, so each field must lie where the driver writes it. */
_Static_assert(sizeof(struct lgv_wc) == sizeof(struct ibv_wc), "size of a completion");
LGV_SAME_PLACE(struct lgv_wc, wr_id, struct ibv_wc, wr_id);
LGV_SAME_PLACE(struct lgv_wc, status, struct ibv_wc, status);
LGV_SAME_PLACE(struct lgv_wc, opcode, struct ibv_wc, opcode);
LGV_SAME_PLACE(struct lgv_wc, vendor_err, struct ibv_wc, vendor_err);
LGV_SAME_PLACE(struct lgv_wc, byte_len, struct ibv_wc, byte_len);
LGV_SAME_PLACE(struct lgv_wc, imm_or_rkey, struct ibv_wc, imm_data);
LGV_SAME_PLACE(struct lgv_wc, qp_num, struct ibv_wc, qp_num);
LGV_SAME_PLACE(struct lgv_wc, src_qp, struct ibv_wc, src_qp);
LGV_SAME_PLACE(struct lgv_wc, wc_flags, struct ibv_wc, wc_flags);
LGV_SAME_PLACE(struct lgv_wc, pkey_index, struct ibv_wc, pkey_index);
LGV_SAME_PLACE(struct lgv_wc, slid, struct ibv_wc, slid);
LGV_SAME_PLACE(struct lgv_wc, sl, struct ibv_wc, sl);
LGV_SAME_PLACE(struct lgv_wc, dlid_path_bits, struct ibv_wc, dlid_path_bits);

LGV_SAME(LGV_WC_RECV, IBV_WC_RECV);
LGV_SAME(LGV_WC_GRH, IBV_WC_GRH);
LGV_SAME(LGV_WC_WITH_IMM, IBV_WC_WITH_IMM);
LGV_SAME(LGV_WC_IP_CSUM_OK, IBV_WC_IP_CSUM_OK);
LGV_SAME(LGV_WC_WITH_INV, IBV_WC_WITH_INV);
LGV_SAME(LGV_WC_EX_BYTE_LEN, IBV_WC_EX_WITH_BYTE_LEN);
LGV_SAME(LGV_WC_EX_IMM, IBV_WC_EX_WITH_IMM);
LGV_SAME(LGV_WC_EX_QP_NUM, IBV_WC_EX_WITH_QP_NUM);
LGV_SAME(LGV_WC_EX_SRC_QP, IBV_WC_EX_WITH_SRC_QP);
LGV_SAME(LGV_WC_EX_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
LGV_SAME(LGV_WC_EX_CVLAN, IBV_WC_EX_WITH_CVLAN);
LGV_SAME(LGV_WC_EX_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);

static int check(const struct ibv_context *context, const struct lgv_cq_create *create)
{
	if (!context || !LGV_SIZED(create) || create->cqe > INT_MAX || create->comp_vector > INT_MAX)
		return -EINVAL;
	return 0;
}

int lgv_cq_create(struct ibv_context *context, const struct lgv_cq_create *create, struct ibv_cq **cq)
{
	struct ibv_cq *made;
	int rc;

	rc = check(context, create);
	if (rc)
		return rc;
	if (!cq || create->wc_flags)
		return -EINVAL;
	errno = 0;
	made = ibv_create_cq(context, (int)create->cqe, (void *)(uintptr_t)create->token, create->channel,
			     (int)create->comp_vector);
	if (!made)
		return lgv_failed();
	*cq = made;
	return 0;
}

int lgv_cq_ex_create(struct ibv_context *context, const struct lgv_cq_create *create, struct ibv_cq_ex **cq_ex,
		     struct ibv_cq **cq)
{
	struct ibv_cq_init_attr_ex attr;
	struct ibv_cq_ex *made;
	int rc;

	rc = check(context, create);
	if (rc)
		return rc;
	if (!cq_ex || !cq || create->wc_flags & ~LGV_WC_EX_ALL)
		return -EINVAL;
	memset(&attr, 0, sizeof(attr));
	attr.cqe = create->cqe;
	attr.cq_context = (void *)(uintptr_t)create->token;
	attr.channel = create->channel;
	attr.comp_vector = create->comp_vector;
	attr.wc_flags = create->wc_flags;
	errno = 0;
	made = ibv_create_cq_ex(context, &attr);
	if (!made)
		return lgv_failed();
	*cq_ex = made;
	*cq = ibv_cq_ex_to_cq(made);
	return 0;
}

int lgv_cq_destroy(struct ibv_cq *cq)
{
	if (!cq)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_destroy_cq(cq));
}

int lgv_cq_info(struct ibv_cq *cq, struct lgv_cq_info *info)
{
	if (!cq || !LGV_SIZED(info))
		return -EINVAL;
	info->handle = cq->handle;
	info->cqe = cq->cqe > 0 ? (uint32_t)cq->cqe : 0;
	info->reserved = 0;
	return 0;
}

int lgv_cq_poll(struct ibv_cq *cq, struct lgv_wc *wc, uint32_t wc_size, uint32_t capacity)
{
	int got;

	if (!cq || !wc || wc_size != sizeof(*wc) || capacity > INT_MAX)
		return -EINVAL;
	got = ibv_poll_cq(cq, (int)capacity, (struct ibv_wc *)wc);
	/* The library says no more than that it is broken: mlx4 and rxe give -1 and -2, errno is untouched. */
	return got >= 0 ? got : -EIO;
}

static void read_wc(struct ibv_cq_ex *cq, uint32_t flags, struct lgv_wc_ex *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cq->wr_id;
	wc->status = (uint32_t)cq->status;
	wc->vendor_err = cq->status ? ibv_wc_read_vendor_err(cq) : 0;
	/* A queue pair is told on errors too; the rest is undefined there. */
	if (flags & LGV_WC_EX_QP_NUM)
		wc->qp_num = ibv_wc_read_qp_num(cq);
	if (cq->status)
		return;
	wc->opcode = (uint32_t)ibv_wc_read_opcode(cq);
	wc->wc_flags = ibv_wc_read_wc_flags(cq);
	if (flags & LGV_WC_EX_BYTE_LEN)
		wc->byte_len = ibv_wc_read_byte_len(cq);
	if (flags & LGV_WC_EX_IMM && wc->wc_flags & (LGV_WC_WITH_IMM | LGV_WC_WITH_INV))
		wc->imm_or_rkey = ibv_wc_read_invalidated_rkey(cq);
	if (flags & LGV_WC_EX_SRC_QP)
		wc->src_qp = ibv_wc_read_src_qp(cq);
	if (flags & LGV_WC_EX_TIMESTAMP)
		wc->timestamp = ibv_wc_read_completion_ts(cq);
	if (flags & LGV_WC_EX_TIMESTAMP_WALLCLOCK)
		wc->wallclock_ns = ibv_wc_read_completion_wallclock_ns(cq);
	if (flags & LGV_WC_EX_CVLAN)
		wc->cvlan = ibv_wc_read_cvlan(cq);
}

int lgv_cq_ex_poll(struct ibv_cq_ex *cq, uint32_t wc_flags, uint32_t poll_flags, struct lgv_wc_ex *wc, uint32_t wc_size,
		   uint32_t capacity)
{
	uint32_t batch = poll_flags & LGV_POLL_BATCH;
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	uint32_t got = 0;
	int rc = 0;

	if (!cq || !wc || wc_size != sizeof(*wc) || capacity > INT_MAX || wc_flags & ~LGV_WC_EX_ALL ||
	    poll_flags & ~LGV_POLL_ALL)
		return -EINVAL;
	while (got < capacity) {
		rc = ibv_start_poll(cq, &attr);
		if (rc)
			break; /* Empty or broken: then the poll must not be ended. */
		do {
			read_wc(cq, wc_flags, &wc[got++]);
		} while (batch && got < capacity && (rc = ibv_next_poll(cq)) == 0);
		ibv_end_poll(cq);
		if (rc)
			break;
	}
	/* What was read before the queue broke counts; the next poll reports the break. */
	return got || !rc || rc == ENOENT ? (int)got : -EIO;
}

int lgv_cq_notify(struct ibv_cq *cq, uint32_t solicited_only)
{
	if (!cq || solicited_only > 1)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_req_notify_cq(cq, (int)solicited_only));
}

int lgv_cq_events_ack(struct ibv_cq *cq, uint32_t count)
{
	if (!cq)
		return -EINVAL;
	ibv_ack_cq_events(cq, count);
	return 0;
}
