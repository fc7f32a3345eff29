/* tls.h - which settings of TLS go together, and what follows from them; for common/svc only.
 */
#pragma once

#include "common/svc/settings.h"

/* Fills the derived settings of TLS. Errors: FIELD_INVALID naming the setting. */
BERTH_MUST_CHECK enum berth_code svc_check_tls(const struct berth_service *service,
                                               struct svc_settings *settings,
                                               struct berth_error *err);
/* Whether a listen address beyond this machine may be served with these settings. */
BERTH_MUST_CHECK enum berth_code svc_check_beyond(const struct svc_settings *settings,
                                                  struct berth_error *err);
/* Reads the files; *ret is NULL where there is no TLS. Errors: FIELD_INVALID naming the file.
 */
BERTH_MUST_CHECK enum berth_code svc_open_tls(const struct svc_settings *settings,
                                              struct berth_tls **ret, struct berth_error *err);
