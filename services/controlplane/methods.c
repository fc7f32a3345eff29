/* methods.c - one table of all services, in the order of their files. */
#include "services/controlplane/controlplane.h"

const struct berth_method *cp_methods(size_t *ret_n)
{
    const struct {
        const struct berth_method *methods;
        size_t n;
    } parts[] = {
        {cp_config_methods, cp_n_config_methods},
        {cp_config_check_methods, cp_n_config_check_methods},
        {cp_config_update_methods, cp_n_config_update_methods},
        {cp_tenant_methods, cp_n_tenant_methods},
        {cp_token_methods, cp_n_token_methods},
        {cp_session_methods, cp_n_session_methods},
        {cp_session_read_methods, cp_n_session_read_methods},
        {cp_turn_methods, cp_n_turn_methods},
        {cp_template_methods, cp_n_template_methods},
        {cp_event_methods, cp_n_event_methods},
        {cp_internal_methods, cp_n_internal_methods},
        {cp_changes_methods, cp_n_changes_methods},
        {cp_settle_methods, cp_n_settle_methods},
    };
    static struct berth_method all[64];
    size_t n = 0;

    for (size_t i = 0; i < BERTH_COUNT(parts); i++)
        for (size_t k = 0; k < parts[i].n && n < BERTH_COUNT(all); k++)
            all[n++] = parts[i].methods[k];
    *ret_n = n;
    return all;
}
