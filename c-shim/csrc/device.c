// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The link, devices, contexts, and what can be asked of them.
 */
#include "shim.h"

LGV_SAME(LGV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW);
LGV_SAME(LGV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_MGT_EXTENSIONS);
LGV_SAME(LGV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_DEVICE_MEM_WINDOW_TYPE_2A);
LGV_SAME(LGV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_DEVICE_MEM_WINDOW_TYPE_2B);
LGV_SAME(LGV_DEVICE_MANAGED_FLOW_STEERING, IBV_DEVICE_MANAGED_FLOW_STEERING);

typedef int query_gid_ex_fn(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			    uint32_t flags, size_t entry_size);
typedef int fork_status_fn(void);

static query_gid_ex_fn *find_query_gid_ex(void)
{
	return (query_gid_ex_fn *)lgv_find("_ibv_query_gid_ex", "IBVERBS_1.11");
}

static fork_status_fn *find_fork_status(void)
{
	return (fork_status_fn *)lgv_find("ibv_is_fork_initialized", "IBVERBS_1.13");
}

uint32_t lgv_link_mode(void)
{
	return LGV_LINK_LIBRARY;
}

uint32_t lgv_link_optional(uint32_t verb)
{
	switch (verb) {
	case LGV_OPTIONAL_DMABUF:
		return lgv_find("ibv_reg_dmabuf_mr", "IBVERBS_1.12") != NULL;
	case LGV_OPTIONAL_GID_ENTRY:
		return find_query_gid_ex() != NULL;
	case LGV_OPTIONAL_FORK_STATUS:
		return find_fork_status() != NULL;
	default:
		return 0;
	}
}

int lgv_device_list(struct ibv_device ***list, uint32_t *count)
{
	struct ibv_device **found;
	int number = 0;

	if (!list || !count)
		return -EINVAL;
	errno = 0;
	found = ibv_get_device_list(&number);
	if (!found)
		return lgv_failed();
	*list = found;
	*count = (uint32_t)number;
	return 0;
}

int lgv_device_list_free(struct ibv_device **list)
{
	if (!list)
		return -EINVAL;
	ibv_free_device_list(list);
	return 0;
}

/* Copies a text that may fill its source without a zero; the rest of the target is zeroed. */
static void copy_text(char *to, size_t to_size, const char *from, size_t from_size)
{
	size_t length = strnlen(from, from_size);

	if (length >= to_size)
		length = to_size - 1;
	memset(to, 0, to_size);
	memcpy(to, from, length);
}

int lgv_device_info(struct ibv_device *device, struct lgv_device_info *info)
{
	__be64 guid;

	if (!device || !LGV_SIZED(info))
		return -EINVAL;
	guid = ibv_get_device_guid(device);
	info->node_type = device->node_type;
	info->transport_type = device->transport_type;
	info->index = ibv_get_device_index(device);
	memcpy(info->guid, &guid, sizeof(info->guid));
	copy_text(info->name, sizeof(info->name), device->name, sizeof(device->name));
	copy_text(info->dev_name, sizeof(info->dev_name), device->dev_name, sizeof(device->dev_name));
	copy_text(info->dev_path, sizeof(info->dev_path), device->dev_path, sizeof(device->dev_path));
	copy_text(info->ibdev_path, sizeof(info->ibdev_path), device->ibdev_path, sizeof(device->ibdev_path));
	return 0;
}

int lgv_context_open(struct ibv_device *device, struct ibv_context **context)
{
	struct ibv_context *opened;

	if (!device || !context)
		return -EINVAL;
	errno = 0;
	opened = ibv_open_device(device);
	if (!opened)
		return lgv_failed();
	*context = opened;
	return 0;
}

int lgv_context_close(struct ibv_context *context)
{
	if (!context)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_close_device(context));
}

int lgv_context_info(struct ibv_context *context, struct lgv_context_info *info)
{
	if (!context || !LGV_SIZED(info))
		return -EINVAL;
	info->cmd_fd = context->cmd_fd;
	info->async_fd = context->async_fd;
	info->num_comp_vectors = context->num_comp_vectors;
	return 0;
}

/* Limits are ints in the library; a negative one would be a driver's fault and means nothing can be had. */
static uint32_t limit(int value)
{
	return value > 0 ? (uint32_t)value : 0;
}

int lgv_device_query(struct ibv_context *context, struct lgv_device_attr *attr)
{
	struct ibv_device_attr_ex ex;
	const struct ibv_device_attr *base = &ex.orig_attr;
	int rc;

	if (!context || !LGV_SIZED(attr))
		return -EINVAL;
	memset(&ex, 0, sizeof(ex));
	errno = 0;
	/* Falls back to the plain query by itself where the driver has no extended one. */
	rc = lgv_result(ibv_query_device_ex(context, NULL, &ex));
	if (rc)
		return rc;

	attr->vendor_id = base->vendor_id;
	attr->vendor_part_id = base->vendor_part_id;
	attr->hw_ver = base->hw_ver;
	attr->max_mr_size = base->max_mr_size;
	attr->page_size_cap = base->page_size_cap;
	attr->cap_flags = base->device_cap_flags | ex.device_cap_flags_ex;
	attr->timestamp_mask = ex.completion_timestamp_mask;
	attr->core_clock_khz = ex.hca_core_clock;
	attr->odp_general_caps = ex.odp_caps.general_caps;
	attr->max_dm_size = ex.max_dm_size;
	attr->max_qp = limit(base->max_qp);
	attr->max_qp_wr = limit(base->max_qp_wr);
	attr->max_sge = limit(base->max_sge);
	attr->max_sge_rd = limit(base->max_sge_rd);
	attr->max_cq = limit(base->max_cq);
	attr->max_cqe = limit(base->max_cqe);
	attr->max_mr = limit(base->max_mr);
	attr->max_pd = limit(base->max_pd);
	attr->max_mw = limit(base->max_mw);
	attr->max_ah = limit(base->max_ah);
	attr->max_qp_rd_atom = limit(base->max_qp_rd_atom);
	attr->max_qp_init_rd_atom = limit(base->max_qp_init_rd_atom);
	attr->max_mcast_grp = limit(base->max_mcast_grp);
	attr->max_mcast_qp_attach = limit(base->max_mcast_qp_attach);
	attr->max_total_mcast_qp_attach = limit(base->max_total_mcast_qp_attach);
	attr->max_raw_ethy_qp = limit(base->max_raw_ethy_qp);
	attr->atomic_cap = (uint32_t)base->atomic_cap;
	attr->raw_packet_caps = ex.raw_packet_caps;
	attr->phys_port_cnt = ex.phys_port_cnt_ex ? ex.phys_port_cnt_ex : base->phys_port_cnt;
	attr->max_pkeys = base->max_pkeys;
	attr->local_ca_ack_delay = base->local_ca_ack_delay;
	attr->reserved = 0;
	copy_text(attr->fw_ver, sizeof(attr->fw_ver), base->fw_ver, sizeof(base->fw_ver));
	memcpy(attr->node_guid, &base->node_guid, sizeof(attr->node_guid));
	memcpy(attr->sys_image_guid, &base->sys_image_guid, sizeof(attr->sys_image_guid));
	return 0;
}

int lgv_port_query(struct ibv_context *context, uint8_t port, struct lgv_port_attr *attr)
{
	struct ibv_port_attr found;
	int rc;

	if (!context || !LGV_SIZED(attr))
		return -EINVAL;
	memset(&found, 0, sizeof(found));
	errno = 0;
	rc = lgv_result(ibv_query_port(context, port, &found));
	if (rc)
		return rc;
	attr->state = (uint32_t)found.state;
	attr->max_mtu = (uint32_t)found.max_mtu;
	attr->active_mtu = (uint32_t)found.active_mtu;
	attr->gid_tbl_len = limit(found.gid_tbl_len);
	attr->cap_flags = found.port_cap_flags;
	attr->max_msg_sz = found.max_msg_sz;
	attr->bad_pkey_cntr = found.bad_pkey_cntr;
	attr->qkey_viol_cntr = found.qkey_viol_cntr;
	attr->pkey_tbl_len = found.pkey_tbl_len;
	attr->lid = found.lid;
	attr->sm_lid = found.sm_lid;
	attr->cap_flags2 = found.port_cap_flags2;
	attr->lmc = found.lmc;
	attr->sm_sl = found.sm_sl;
	attr->active_width = found.active_width;
	attr->active_speed = found.active_speed;
	attr->phys_state = found.phys_state;
	attr->link_layer = found.link_layer;
	attr->flags = found.flags;
	attr->reserved = 0;
	return 0;
}

LGV_SAME(LGV_GID_TYPE_IB, IBV_GID_TYPE_IB);
LGV_SAME(LGV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V1);
LGV_SAME(LGV_GID_TYPE_ROCE_V2, IBV_GID_TYPE_ROCE_V2);

int lgv_gid_query(struct ibv_context *context, uint8_t port, uint32_t index, struct lgv_gid_entry *entry)
{
	query_gid_ex_fn *query = find_query_gid_ex();
	struct ibv_gid_entry found;
	int rc;

	if (!context || !LGV_SIZED(entry))
		return -EINVAL;
	if (!query)
		return -EOPNOTSUPP;
	memset(&found, 0, sizeof(found));
	errno = 0;
	rc = lgv_result(query(context, port, index, &found, 0, sizeof(found)));
	if (rc)
		return rc;
	entry->gid_index = found.gid_index;
	entry->port_num = found.port_num;
	entry->gid_type = found.gid_type;
	entry->netdev_index = found.ndev_ifindex;
	memcpy(entry->gid, found.gid.raw, sizeof(entry->gid));
	return 0;
}

int lgv_gid_raw_query(struct ibv_context *context, uint8_t port, uint32_t index, uint8_t gid[16])
{
	union ibv_gid found;
	int rc;

	if (!context || !gid || index > INT_MAX)
		return -EINVAL;
	errno = 0;
	rc = lgv_errno_result(ibv_query_gid(context, port, (int)index, &found));
	if (rc)
		return rc;
	memcpy(gid, found.raw, sizeof(found.raw));
	return 0;
}

int lgv_pkey_query(struct ibv_context *context, uint8_t port, uint32_t index, uint16_t *pkey)
{
	__be16 found;
	uint8_t bytes[2];
	int rc;

	if (!context || !pkey || index > INT_MAX)
		return -EINVAL;
	errno = 0;
	rc = lgv_errno_result(ibv_query_pkey(context, port, (int)index, &found));
	if (rc)
		return rc;
	memcpy(bytes, &found, sizeof(bytes));
	*pkey = (uint16_t)(bytes[0] << 8 | bytes[1]);
	return 0;
}

int lgv_clock_query(struct ibv_context *context, struct lgv_clock *clock)
{
	struct ibv_values_ex values;
	int rc;

	if (!context || !LGV_SIZED(clock))
		return -EINVAL;
	memset(&values, 0, sizeof(values));
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	errno = 0;
	rc = lgv_result(ibv_query_rt_values_ex(context, &values));
	if (rc)
		return rc;
	if (!(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
		return -EOPNOTSUPP;
	/* Not a time: drivers give the counter's bits as nanoseconds that may pass a second. */
	clock->raw = (uint64_t)values.raw_clock.tv_sec * 1000000000u + (uint64_t)values.raw_clock.tv_nsec;
	clock->reserved = 0;
	return 0;
}

LGV_SAME(LGV_FORK_DISABLED, IBV_FORK_DISABLED);
LGV_SAME(LGV_FORK_ENABLED, IBV_FORK_ENABLED);
LGV_SAME(LGV_FORK_UNNEEDED, IBV_FORK_UNNEEDED);

int lgv_fork_status(uint32_t *status)
{
	fork_status_fn *query = find_fork_status();

	if (!status)
		return -EINVAL;
	if (!query)
		return -EOPNOTSUPP;
	*status = (uint32_t)query();
	return 0;
}
