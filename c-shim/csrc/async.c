// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Asynchronous events of a device.
 */
#include "shim.h"

/* What an event is about; only then is that member of the library's union valid. */
static uint32_t subject_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return LGV_EVENT_ON_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return LGV_EVENT_ON_QP;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		return LGV_EVENT_ON_PORT;
	case IBV_EVENT_DEVICE_FATAL:
		return LGV_EVENT_ON_DEVICE;
	default:
		return LGV_EVENT_ON_OTHER;
	}
}

int lgv_async_event_get(struct ibv_context *context, struct lgv_async_event *event)
{
	struct ibv_async_event found;
	int rc;

	if (!context || !LGV_SIZED(event))
		return -EINVAL;
	memset(&found, 0, sizeof(found));
	errno = 0;
	rc = lgv_errno_result(ibv_get_async_event(context, &found));
	if (rc)
		return rc;
	event->type = (uint32_t)found.event_type;
	event->subject = subject_of(found.event_type);
	event->port = event->subject == LGV_EVENT_ON_PORT ? (uint32_t)found.element.port_num : 0;
	event->object = event->subject == LGV_EVENT_ON_PORT ? 0 : (uint64_t)(uintptr_t)found.element.qp;
	return 0;
}

int lgv_async_event_ack(const struct lgv_async_event *event)
{
	struct ibv_async_event taken;

	if (!LGV_SIZED(event))
		return -EINVAL;
	memset(&taken, 0, sizeof(taken));
	taken.event_type = (enum ibv_event_type)event->type;
	if (event->subject == LGV_EVENT_ON_PORT)
		taken.element.port_num = (int)event->port;
	else
		taken.element.qp = (struct ibv_qp *)(uintptr_t)event->object;
	ibv_ack_async_event(&taken);
	return 0;
}
