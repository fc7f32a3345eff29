/* process.h - commands of the local backend: requests to the sandbox's supervisor. */
#pragma once

#include "services/adapter/data.h"

extern const struct adapter_process_ops local_process_ops;
