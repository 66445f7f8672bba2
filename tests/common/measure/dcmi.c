/* A module of OpenIPMI's ipmi_sim, which has no DCMI: answers DCMI commands as Get Power Reading (DCMI 1.5, 6.6.1).

   Its option is the path of a file with the watts. The declarations are those of OpenIPMI/mcserv.h. */

#include <stdio.h>
#include <string.h>

#define DCMI 0xdc

typedef void handler(void *mc, void *message, unsigned char *reply, unsigned int *length, void *data);
void ipmi_emu_register_group_extension_handler(unsigned char group, handler *handle, void *data);

static void get_power_reading(void *mc, void *message, unsigned char *reply, unsigned int *length, void *path)
{
    FILE *file = fopen(path, "r");
    int watts, found = file != NULL && fscanf(file, "%d", &watts) == 1;

    if (file != NULL)
        fclose(file);
    memset(reply, 0, 19);
    *length = 19;
    reply[1] = DCMI;
    if (!found)
        return; /* 0 W, not activated */
    for (int at = 2; at < 10; at += 2) { /* now, lowest, highest, mean */
        reply[at] = watts & 0xff;
        reply[at + 1] = watts >> 8;
    }
    reply[18] = 1 << 6; /* activated */
}

int ipmi_sim_module_print_version(void *system, char *path)
{
    return 0;
}

int ipmi_sim_module_init(void *system, const char *path)
{
    ipmi_emu_register_group_extension_handler(DCMI, get_power_reading, strdup(path));
    return 0;
}
