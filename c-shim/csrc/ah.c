// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Address handles.
 */
#include "ah.h"

int lgv_ah_create(struct ibv_pd *pd, const struct lgv_ah_attr *attr, struct ibv_ah **ah)
{
	struct ibv_ah_attr request;
	struct ibv_ah *made;
	int rc;

	if (!pd || !ah)
		return -EINVAL;
	rc = lgv_ah_to_verbs(attr, &request);
	if (rc)
		return rc;
	errno = 0;
	made = ibv_create_ah(pd, &request);
	if (!made)
		return lgv_failed();
	*ah = made;
	return 0;
}

int lgv_ah_destroy(struct ibv_ah *ah)
{
	if (!ah)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_destroy_ah(ah));
}
