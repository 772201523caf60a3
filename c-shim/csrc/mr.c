// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Memory regions.
 */
#include "shim.h"

LGV_SAME(LGV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
LGV_SAME(LGV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
LGV_SAME(LGV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
LGV_SAME(LGV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC);
LGV_SAME(LGV_ACCESS_MW_BIND, IBV_ACCESS_MW_BIND);
LGV_SAME(LGV_ACCESS_ZERO_BASED, IBV_ACCESS_ZERO_BASED);
LGV_SAME(LGV_ACCESS_ON_DEMAND, IBV_ACCESS_ON_DEMAND);
LGV_SAME(LGV_ACCESS_HUGETLB, IBV_ACCESS_HUGETLB);
LGV_SAME(LGV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING);

typedef struct ibv_mr *reg_dmabuf_mr_fn(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					int access);

static int check(const struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr)
{
	if (!pd || !mr || !LGV_SIZED(reg) || reg->access & ~LGV_ACCESS_ALL || reg->reserved)
		return -EINVAL;
	return 0;
}

int lgv_mr_reg(struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr)
{
	struct ibv_mr *made;
	int rc;

	rc = check(pd, reg, mr);
	if (rc)
		return rc;
	errno = 0;
	/* The plain macro where the address isn't changed: kernels before 5.6 know no other call. */
	if (reg->iova == reg->addr)
		made = ibv_reg_mr(pd, (void *)(uintptr_t)reg->addr, reg->length, reg->access);
	else
		made = ibv_reg_mr_iova(pd, (void *)(uintptr_t)reg->addr, reg->length, reg->iova, reg->access);
	if (!made)
		return lgv_failed();
	*mr = made;
	return 0;
}

int lgv_mr_reg_dmabuf(struct ibv_pd *pd, const struct lgv_mr_reg *reg, struct ibv_mr **mr)
{
	reg_dmabuf_mr_fn *reg_dmabuf = (reg_dmabuf_mr_fn *)lgv_find("ibv_reg_dmabuf_mr", "IBVERBS_1.12");
	struct ibv_mr *made;
	int rc;

	rc = check(pd, reg, mr);
	if (rc)
		return rc;
	if (!reg_dmabuf)
		return -EOPNOTSUPP;
	errno = 0;
	made = reg_dmabuf(pd, reg->addr, reg->length, reg->iova, reg->dmabuf_fd, (int)reg->access);
	if (!made)
		return lgv_failed();
	*mr = made;
	return 0;
}

int lgv_mr_dereg(struct ibv_mr *mr)
{
	if (!mr)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_dereg_mr(mr));
}

int lgv_mr_info(struct ibv_mr *mr, struct lgv_mr_info *info)
{
	if (!mr || !LGV_SIZED(info))
		return -EINVAL;
	info->handle = mr->handle;
	info->lkey = mr->lkey;
	info->rkey = mr->rkey;
	info->addr = (uint64_t)(uintptr_t)mr->addr;
	info->length = mr->length;
	return 0;
}
