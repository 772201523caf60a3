/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the files of the shim share: how results are normalised, how structs are checked, how optional verbs are found.
 *
 * Everything here is static: the archive defines no global symbol beside those of lockgate_verbs.h.
 */
#ifndef LOCKGATE_SHIM_H
#define LOCKGATE_SHIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dlvsym, RTLD_DEFAULT */
#endif

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "lockgate_verbs.h"

/* The header's numbers are the library's: a value goes through unchanged once its bits are known. */
#define LGV_SAME(ours, theirs) _Static_assert((ours) == (unsigned int)(theirs), #ours " is " #theirs)

#define LGV_SAME_PLACE(ours, our_field, theirs, their_field)                                                          \
	_Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                                  \
			       sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),                  \
		       "place of " #our_field)

/* An input or output of another size comes from another header. */
#define LGV_SIZED(ptr) ((ptr) && (ptr)->size == sizeof(*(ptr)))

/*
 * lgv_failed - the negative error number of a call that gave no object.
 *
 * errno was set to 0 before the call; some drivers forget to set it.
 */
static inline int lgv_failed(void)
{
	return errno > 0 ? -errno : -EPROTO;
}

/*
 * lgv_result - 0 or a negative error number from a call that answers with one of either sign.
 *
 * Most answer with a positive number; providers before rdma-core 30 have destroy calls that answer with a negative one;
 * a few answer with -1 and errno. errno was set to 0 before the call.
 */
static inline int lgv_result(int rc)
{
	if (rc == 0)
		return 0;
	if (rc == -1 && errno > 0)
		return -errno;
	return rc > 0 ? -rc : rc;
}

/*
 * lgv_errno_result - the same for calls that answer every failure with -1 and errno.
 */
static inline int lgv_errno_result(int rc)
{
	return rc == 0 ? 0 : lgv_failed();
}

/*
 * lgv_find - an optional verb of the library that is loaded, or null.
 *
 * By version, since a symbol of the same name may be another library's.
 */
static inline void *lgv_find(const char *name, const char *version)
{
	return dlvsym(RTLD_DEFAULT, name, version);
}

#endif /* LOCKGATE_SHIM_H */
