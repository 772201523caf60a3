// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Flow rules: what a raw packet queue receives.
 */
#include "shim.h"

LGV_SAME(LGV_FLOW_NORMAL, IBV_FLOW_ATTR_NORMAL);
LGV_SAME(LGV_FLOW_ALL_DEFAULT, IBV_FLOW_ATTR_ALL_DEFAULT);
LGV_SAME(LGV_FLOW_MC_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT);
LGV_SAME(LGV_FLOW_SNIFFER, IBV_FLOW_ATTR_SNIFFER);
LGV_SAME(LGV_FLOW_DONT_TRAP, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);

/* The library reads a rule as one run of bytes: the head, then one part for each layer. */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t parts[sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) +
		      sizeof(struct ibv_flow_spec_tcp_udp)];
};
_Static_assert(offsetof(struct rule, parts) == sizeof(struct ibv_flow_attr), "parts follow the head");

static void add(struct rule *rule, const void *part, uint16_t size)
{
	memcpy(rule->parts + (rule->attr.size - sizeof(rule->attr)), part, size);
	rule->attr.size = (uint16_t)(rule->attr.size + size);
	rule->attr.num_of_specs++;
}

static void fill_eth(struct ibv_flow_eth_filter *out, const struct lgv_flow_match *match)
{
	memcpy(out->dst_mac, match->dst_mac, sizeof(out->dst_mac));
	memcpy(out->src_mac, match->src_mac, sizeof(out->src_mac));
	out->ether_type = match->ether_type;
	out->vlan_tag = match->vlan_tag;
}

static void add_eth(struct rule *rule, const struct lgv_flow_create *create)
{
	struct ibv_flow_spec_eth part;

	memset(&part, 0, sizeof(part));
	part.type = IBV_FLOW_SPEC_ETH;
	part.size = sizeof(part);
	fill_eth(&part.val, &create->value);
	fill_eth(&part.mask, &create->mask);
	add(rule, &part, sizeof(part));
}

static void fill_ipv4(struct ibv_flow_ipv4_filter *out, const struct lgv_flow_match *match)
{
	memcpy(&out->src_ip, match->src_ip, sizeof(out->src_ip));
	memcpy(&out->dst_ip, match->dst_ip, sizeof(out->dst_ip));
}

static void add_ipv4(struct rule *rule, const struct lgv_flow_create *create)
{
	struct ibv_flow_spec_ipv4 part;

	memset(&part, 0, sizeof(part));
	part.type = IBV_FLOW_SPEC_IPV4;
	part.size = sizeof(part);
	fill_ipv4(&part.val, &create->value);
	fill_ipv4(&part.mask, &create->mask);
	add(rule, &part, sizeof(part));
}

static void fill_ipv6(struct ibv_flow_ipv6_filter *out, const struct lgv_flow_match *match)
{
	memcpy(out->src_ip, match->src_ip, sizeof(out->src_ip));
	memcpy(out->dst_ip, match->dst_ip, sizeof(out->dst_ip));
	out->flow_label = match->flow_label;
	out->next_hdr = match->next_header;
	out->traffic_class = match->traffic_class;
	out->hop_limit = match->hop_limit;
}

static void add_ipv6(struct rule *rule, const struct lgv_flow_create *create)
{
	struct ibv_flow_spec_ipv6 part;

	memset(&part, 0, sizeof(part));
	part.type = IBV_FLOW_SPEC_IPV6;
	part.size = sizeof(part);
	fill_ipv6(&part.val, &create->value);
	fill_ipv6(&part.mask, &create->mask);
	add(rule, &part, sizeof(part));
}

static void add_ports(struct rule *rule, const struct lgv_flow_create *create)
{
	struct ibv_flow_spec_tcp_udp part;

	memset(&part, 0, sizeof(part));
	part.type = create->layers & LGV_FLOW_LAYER_UDP ? IBV_FLOW_SPEC_UDP : IBV_FLOW_SPEC_TCP;
	part.size = sizeof(part);
	part.val.src_port = create->value.src_port;
	part.val.dst_port = create->value.dst_port;
	part.mask.src_port = create->mask.src_port;
	part.mask.dst_port = create->mask.dst_port;
	add(rule, &part, sizeof(part));
}

/* One layer of each kind; the library reads the parts from the link layer up. */
static int known_layers(uint32_t layers)
{
	uint32_t ip = layers & (LGV_FLOW_LAYER_IPV4 | LGV_FLOW_LAYER_IPV6);
	uint32_t ports = layers & (LGV_FLOW_LAYER_UDP | LGV_FLOW_LAYER_TCP);

	return !(layers & ~LGV_FLOW_LAYER_ALL) && (ip & (ip - 1)) == 0 && (ports & (ports - 1)) == 0;
}

int lgv_flow_create(struct ibv_qp *qp, const struct lgv_flow_create *create, struct ibv_flow **flow)
{
	struct ibv_flow *made;
	struct rule rule;

	if (!qp || !flow || !LGV_SIZED(create) || create->type > LGV_FLOW_SNIFFER || !known_layers(create->layers) ||
	    create->flags & ~LGV_FLOW_DONT_TRAP || create->reserved || create->value.reserved || create->mask.reserved)
		return -EINVAL;
	memset(&rule, 0, sizeof(rule));
	rule.attr.type = (enum ibv_flow_attr_type)create->type;
	rule.attr.size = sizeof(rule.attr);
	rule.attr.priority = create->priority;
	rule.attr.port = create->port;
	rule.attr.flags = create->flags;
	if (create->layers & LGV_FLOW_LAYER_ETH)
		add_eth(&rule, create);
	if (create->layers & LGV_FLOW_LAYER_IPV4)
		add_ipv4(&rule, create);
	if (create->layers & LGV_FLOW_LAYER_IPV6)
		add_ipv6(&rule, create);
	if (create->layers & (LGV_FLOW_LAYER_UDP | LGV_FLOW_LAYER_TCP))
		add_ports(&rule, create);
	errno = 0;
	made = ibv_create_flow(qp, &rule.attr);
	if (!made)
		return lgv_failed();
	*flow = made;
	return 0;
}

int lgv_flow_destroy(struct ibv_flow *flow)
{
	if (!flow)
		return -EINVAL;
	errno = 0;
	return lgv_result(ibv_destroy_flow(flow));
}

int lgv_flow_handle(struct ibv_flow *flow, uint32_t *handle)
{
	if (!flow || !handle)
		return -EINVAL;
	*handle = flow->handle;
	return 0;
}
