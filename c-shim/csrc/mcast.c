// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Multicast groups of datagram queues.
 */
#include "shim.h"

int lgv_mcast_attach(struct ibv_qp *qp, const uint8_t gid[16], uint16_t lid)
{
	union ibv_gid group;

	if (!qp || !gid)
		return -EINVAL;
	memcpy(group.raw, gid, sizeof(group.raw));
	errno = 0;
	return lgv_result(ibv_attach_mcast(qp, &group, lid));
}

int lgv_mcast_detach(struct ibv_qp *qp, const uint8_t gid[16], uint16_t lid)
{
	union ibv_gid group;

	if (!qp || !gid)
		return -EINVAL;
	memcpy(group.raw, gid, sizeof(group.raw));
	errno = 0;
	return lgv_result(ibv_detach_mcast(qp, &group, lid));
}
