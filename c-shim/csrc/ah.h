/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Addresses of peers, as address handles and queue pairs both take them.
 */
#ifndef LOCKGATE_SHIM_AH_H
#define LOCKGATE_SHIM_AH_H

#include "shim.h"

static inline int lgv_ah_to_verbs(const struct lgv_ah_attr *attr, struct ibv_ah_attr *out)
{
	if (!LGV_SIZED(attr) || attr->is_global > 1 || attr->reserved[0] || attr->reserved[1])
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	memcpy(out->grh.dgid.raw, attr->dgid, sizeof(attr->dgid));
	out->grh.flow_label = attr->flow_label;
	out->grh.sgid_index = attr->sgid_index;
	out->grh.hop_limit = attr->hop_limit;
	out->grh.traffic_class = attr->traffic_class;
	out->dlid = attr->dlid;
	out->sl = attr->sl;
	out->src_path_bits = attr->src_path_bits;
	out->static_rate = attr->static_rate;
	out->is_global = attr->is_global;
	out->port_num = attr->port_num;
	return 0;
}

static inline void lgv_ah_from_verbs(const struct ibv_ah_attr *attr, struct lgv_ah_attr *out)
{
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	memcpy(out->dgid, attr->grh.dgid.raw, sizeof(out->dgid));
	out->flow_label = attr->grh.flow_label;
	out->sgid_index = attr->grh.sgid_index;
	out->hop_limit = attr->grh.hop_limit;
	out->traffic_class = attr->grh.traffic_class;
	out->dlid = attr->dlid;
	out->sl = attr->sl;
	out->src_path_bits = attr->src_path_bits;
	out->static_rate = attr->static_rate;
	out->is_global = attr->is_global != 0;
	out->port_num = attr->port_num;
}

#endif /* LOCKGATE_SHIM_AH_H */
