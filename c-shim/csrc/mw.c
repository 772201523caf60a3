// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Memory windows.
 */
#include "shim.h"

LGV_SAME(LGV_MW_TYPE_1, IBV_MW_TYPE_1);
LGV_SAME(LGV_MW_TYPE_2, IBV_MW_TYPE_2);

int lgv_mw_alloc(struct ibv_pd *pd, uint32_t type, struct ibv_mw **mw)
{
	struct ibv_mw *made;

	if (!pd || !mw || (type != LGV_MW_TYPE_1 && type != LGV_MW_TYPE_2))
		return -EINVAL;
	errno = 0;
	made = ibv_alloc_mw(pd, (enum ibv_mw_type)type);
	if (!made)
		return lgv_failed();
	*mw = made;
	return 0;
}

int lgv_mw_dealloc(struct ibv_mw *mw)
{
	if (!mw)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_dealloc_mw(mw));
}

int lgv_mw_info(struct ibv_mw *mw, struct lgv_mw_info *info)
{
	if (!mw || !LGV_SIZED(info))
		return -EINVAL;
	info->handle = mw->handle;
	info->rkey = mw->rkey;
	info->type = (uint32_t)mw->type;
	return 0;
}

int lgv_mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, const struct lgv_mw_bind *bind)
{
	struct ibv_mw_bind request;

	if (!qp || !mw || !LGV_SIZED(bind) || bind->access & ~LGV_ACCESS_ALL || bind->send_flags & ~LGV_SEND_ALL ||
	    bind->reserved)
		return -EINVAL;
	/* The inline checks the type, but calls through the context without a look. */
	if (!mw->context->ops.bind_mw)
		return -EOPNOTSUPP;
	memset(&request, 0, sizeof(request));
	request.wr_id = bind->wr_id;
	request.send_flags = bind->send_flags;
	request.bind_info.mr = bind->mr;
	request.bind_info.addr = bind->addr;
	request.bind_info.length = bind->length;
	request.bind_info.mw_access_flags = bind->access;
	errno = 0;
	return lgv_result(ibv_bind_mw(qp, mw, &request));
}

uint32_t lgv_rkey_next(uint32_t rkey)
{
	return ibv_inc_rkey(rkey);
}
