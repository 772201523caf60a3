// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Protection domains.
 */
#include "shim.h"

int lgv_pd_alloc(struct ibv_context *context, struct ibv_pd **pd)
{
	struct ibv_pd *made;

	if (!context || !pd)
		return -EINVAL;
	errno = 0;
	made = ibv_alloc_pd(context);
	if (!made)
		return lgv_failed();
	*pd = made;
	return 0;
}

int lgv_pd_dealloc(struct ibv_pd *pd)
{
	if (!pd)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_dealloc_pd(pd));
}

int lgv_pd_handle(struct ibv_pd *pd, uint32_t *handle)
{
	if (!pd || !handle)
		return -EINVAL;
	*handle = pd->handle;
	return 0;
}
