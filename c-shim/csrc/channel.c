// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Completion event channels.
 */
#include "shim.h"

int lgv_channel_create(struct ibv_context *context, struct ibv_comp_channel **channel)
{
	struct ibv_comp_channel *made;

	if (!context || !channel)
		return -EINVAL;
	errno = 0;
	made = ibv_create_comp_channel(context);
	if (!made)
		return lgv_failed();
	*channel = made;
	return 0;
}

int lgv_channel_destroy(struct ibv_comp_channel *channel)
{
	if (!channel)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_destroy_comp_channel(channel));
}

int lgv_channel_fd(struct ibv_comp_channel *channel, int32_t *fd)
{
	if (!channel || !fd)
		return -EINVAL;
	*fd = channel->fd;
	return 0;
}

int lgv_channel_event_get(struct ibv_comp_channel *channel, struct ibv_cq **cq, uint64_t *token)
{
	struct ibv_cq *found = NULL;
	void *context = NULL;
	int rc;

	if (!channel || !cq || !token)
		return -EINVAL;
	errno = 0;
	rc = lgv_errno_result(ibv_get_cq_event(channel, &found, &context));
	if (rc)
		return rc;
	*cq = found;
	*token = (uint64_t)(uintptr_t)context;
	return 0;
}
