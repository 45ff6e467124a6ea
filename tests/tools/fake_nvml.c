/* A stand-in for the NVIDIA management library, for tests of the real pynvml module on machines without a GPU.
 *
 *   cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 fake_nvml.c
 *
 * The environment variable FAKE_NVML picks the machine:
 *   one        an RTX 3060 12 GB, a llama-server (4242) and a display server (4300) on it
 *   two        an RTX 3060 in the first slot, an RTX 3090 in the second
 *   twins      two RTX 3090
 *   mig        an A100 split into two instances of 20 GB
 *   nodriver   the library is there, the driver does not answer
 *   mismatch   the library belongs to another driver version
 *   nomemory   the memory query is NOT_SUPPORTED
 *   noperm     everything but name and memory is NO_PERMISSION
 *   v1         an older driver: no version 2 of the memory query
 *   wsl        per-process memory is not available
 *   gb10       memory NOT_SUPPORTED, addressing mode ATS
 */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

typedef int ret_t;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, VERSION_MISMATCH = 18 };

#define MIB (1024ull * 1024ull)

struct gpu { const char *name, *uuid, *bus; unsigned pci, cores, sm_mhz, mem_mhz, width; int major, minor;
             unsigned long long total, reserved, free; unsigned gen, lanes; };
static const struct gpu RTX3060 = { "NVIDIA GeForce RTX 3060", "GPU-11111111-aaaa-bbbb-cccc-000000003060",
  "00000000:01:00.0", 0x250310DE, 3584, 2100, 7501, 192, 8, 6, 12288 * MIB, 240 * MIB, 9000 * MIB, 4, 16 };
static const struct gpu RTX3090 = { "NVIDIA GeForce RTX 3090", "GPU-22222222-aaaa-bbbb-cccc-000000003090",
  "00000000:02:00.0", 0x220410DE, 10496, 2100, 9751, 384, 8, 6, 24576 * MIB, 300 * MIB, 24000 * MIB, 4, 8 };
static const struct gpu RTX3090B = { "NVIDIA GeForce RTX 3090", "GPU-33333333-aaaa-bbbb-cccc-000000003090",
  "00000000:03:00.0", 0x220410DE, 10496, 2100, 9751, 384, 8, 6, 24576 * MIB, 300 * MIB, 20000 * MIB, 3, 16 };
static const struct gpu A100 = { "NVIDIA A100-SXM4-40GB", "GPU-44444444-aaaa-bbbb-cccc-0000000a1000",
  "00000000:41:00.0", 0x20B010DE, 6912, 1410, 1215, 5120, 8, 0, 40960 * MIB, 600 * MIB, 100 * MIB, 4, 16 };
static const struct gpu MIG0 = { "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-55555555-aaaa-bbbb-cccc-000000000001",
  "", 0, 0, 0, 0, 0, 8, 0, 19968 * MIB, 0, 19900 * MIB, 0, 0 };
static const struct gpu MIG1 = { "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-55555555-aaaa-bbbb-cccc-000000000002",
  "", 0, 0, 0, 0, 0, 8, 0, 19968 * MIB, 0, 12000 * MIB, 0, 0 };
static const struct gpu GB10 = { "NVIDIA GB10", "GPU-66666666-aaaa-bbbb-cccc-000000000010",
  "0000000F:01:00.0", 0x2E1210DE, 6144, 2418, 0, 0, 12, 1, 0, 0, 0, 0, 0 };

static int is(const char *machine) {
    const char *wanted = getenv("FAKE_NVML");
    return wanted != NULL && strcmp(wanted, machine) == 0;
}

ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (is("nodriver")) return DRIVER_NOT_LOADED;
    if (is("mismatch")) return VERSION_MISMATCH;
    return OK;
}
ret_t nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(ret_t code) {
    switch (code) {
        case NOT_SUPPORTED: return "Not Supported";
        case NO_PERMISSION: return "Insufficient Permissions";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case VERSION_MISMATCH: return "Driver/library version mismatch";
        default: return "Error";
    }
}

static ret_t put(char *to, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return OK;
}
static ret_t denied(void) { return is("noperm") ? NO_PERMISSION : OK; }

ret_t nvmlSystemGetDriverVersion(char *to, unsigned size) { return denied() ? NO_PERMISSION : put(to, size, "550.54.14"); }
ret_t nvmlDeviceGetCount_v2(unsigned *count) { *count = is("two") || is("twins") ? 2 : 1; return OK; }
ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, const struct gpu **device) {
    const struct gpu *first = is("mig") ? &A100 : is("gb10") ? &GB10 : is("twins") ? &RTX3090 : &RTX3060;
    if (index == 0) *device = first;
    else if (index == 1 && is("two")) *device = &RTX3090;
    else if (index == 1 && is("twins")) *device = &RTX3090B;
    else return INVALID;
    return OK;
}
ret_t nvmlDeviceGetName(const struct gpu *g, char *to, unsigned size) { return put(to, size, g->name); }
ret_t nvmlDeviceGetUUID(const struct gpu *g, char *to, unsigned size) { return denied() ? NO_PERMISSION : put(to, size, g->uuid); }

struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
ret_t nvmlDeviceGetMemoryInfo(const struct gpu *g, struct memory_v1 *m) {
    if (is("nomemory") || is("gb10")) return NOT_SUPPORTED;
    m->total = g->total; m->free = g->free; m->used = g->total - g->free;
    return OK;
}
ret_t nvmlDeviceGetMemoryInfo_v2(const struct gpu *g, struct memory_v2 *m) {
    if (m->version != 0x02000028) return INVALID;
    if (is("nomemory") || is("gb10") || is("v1")) return NOT_SUPPORTED;
    m->total = g->total; m->reserved = g->reserved; m->free = g->free; m->used = g->total - g->free - g->reserved;
    return OK;
}
static ret_t number(unsigned *to, unsigned value) {
    if (denied()) return NO_PERMISSION;
    if (value == 0) return NOT_SUPPORTED;
    *to = value;
    return OK;
}
ret_t nvmlDeviceGetMemoryBusWidth(const struct gpu *g, unsigned *to) { return number(to, g->width); }
ret_t nvmlDeviceGetMaxClockInfo(const struct gpu *g, int type, unsigned *to) {
    return number(to, type == 2 ? g->mem_mhz : g->sm_mhz);  /* 1 SM, 2 memory */
}
ret_t nvmlDeviceGetMaxPcieLinkGeneration(const struct gpu *g, unsigned *to) { return number(to, g->gen); }
ret_t nvmlDeviceGetMaxPcieLinkWidth(const struct gpu *g, unsigned *to) { return number(to, g->lanes); }
ret_t nvmlDeviceGetNumGpuCores(const struct gpu *g, unsigned *to) { return number(to, g->cores); }
ret_t nvmlDeviceGetCudaComputeCapability(const struct gpu *g, int *major, int *minor) {
    if (denied()) return NO_PERMISSION;
    *major = g->major; *minor = g->minor;
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
ret_t nvmlDeviceGetPciInfo_v3(const struct gpu *g, struct pci *p) {
    if (denied()) return NO_PERMISSION;
    memset(p, 0, sizeof *p);
    p->id = g->pci;
    strcpy(p->bus_id, g->bus);
    return OK;
}

struct addressing { unsigned version, value; };
ret_t nvmlDeviceGetAddressingMode(const struct gpu *g, struct addressing *a) {
    (void)g;
    if (!is("gb10")) return NOT_SUPPORTED;
    a->value = 2;
    return OK;
}

ret_t nvmlDeviceGetMigMode(const struct gpu *g, unsigned *now, unsigned *pending) {
    (void)g;
    if (!is("mig")) return NOT_SUPPORTED;
    *now = *pending = 1;
    return OK;
}
ret_t nvmlDeviceGetMaxMigDeviceCount(const struct gpu *g, unsigned *count) { (void)g; *count = 7; return OK; }
ret_t nvmlDeviceGetMigDeviceHandleByIndex(const struct gpu *g, unsigned index, const struct gpu **device) {
    (void)g;
    if (index == 0) *device = &MIG0;
    else if (index == 2) *device = &MIG1;  /* a gap, as after an instance was destroyed */
    else return NOT_FOUND;
    return OK;
}

struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
static ret_t list(unsigned *count, struct process *to, unsigned pid, unsigned long long used) {
    if (*count < 1 || to == NULL) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1;
    to[0].pid = pid; to[0].used = is("wsl") ? ~0ull : used; to[0].gi = to[0].ci = ~0u;
    return OK;
}
ret_t nvmlDeviceGetComputeRunningProcesses_v3(const struct gpu *g, unsigned *count, struct process *to) {
    if (denied()) return NO_PERMISSION;
    if (g != &RTX3060) { *count = 0; return OK; }
    return list(count, to, 4242, 2500 * MIB);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(const struct gpu *g, unsigned *count, struct process *to) {
    if (denied()) return NO_PERMISSION;
    if (g != &RTX3060) { *count = 0; return OK; }
    return list(count, to, 4300, 548 * MIB);
}
