#include "standin.h"

#include <cstdint>
#include <string>

#include "cuda_rules.h"
#include "ggml-backend-impl.h"

namespace standin {
namespace {

// Everything ggml asks a device for, in one place. ggml keeps pointers into it.
struct Device {
    int                      index = 0;
    std::string              name;
    size_t                   free_bytes = 0;
    ggml_backend_device      device{};
    ggml_backend_buffer_type buffer_type{};
};

Device                   g_devices[MAX_DEVICES];
ggml_backend_buffer_type g_pinned_type{};
ggml_backend_reg         g_registry{};

Device & of(ggml_backend_dev_t device) { return *static_cast<Device *>(device->context); }
Device & of(ggml_backend_buffer_type_t type) { return *static_cast<Device *>(type->context); }

// --- device buffers: sizes without memory behind them -----------------------------------------------------------------

void   buffer_free(ggml_backend_buffer_t) {}
void * buffer_base(ggml_backend_buffer_t buffer) {
    return buffer->size > 0 ? reinterpret_cast<void *>(uintptr_t{1} << 20) : nullptr;
}
void buffer_fill(ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t) {}
void buffer_write(ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t) {}
void buffer_read(ggml_backend_buffer_t, const ggml_tensor *, void *, size_t, size_t) {}
void buffer_clear(ggml_backend_buffer_t, uint8_t) {}

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_i calls{};
    calls.free_buffer   = buffer_free;
    calls.get_base      = buffer_base;
    calls.memset_tensor = buffer_fill;
    calls.set_tensor    = buffer_write;
    calls.get_tensor    = buffer_read;
    calls.clear         = buffer_clear;
    return ggml_backend_buffer_init(type, calls, nullptr, size);
}

const char * type_name(ggml_backend_buffer_type_t type) { return of(type).name.c_str(); }
size_t       type_alignment(ggml_backend_buffer_type_t) { return cuda_rules::ALIGNMENT; }
size_t       type_max_size(ggml_backend_buffer_type_t) { return SIZE_MAX; }
size_t type_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) { return cuda_rules::alloc_size(tensor); }

// --- pinned host memory: plain host memory under its own name ---------------------------------------------------------

const char * pinned_name(ggml_backend_buffer_type_t) { return "FAKE_Host"; }
bool         pinned_is_host(ggml_backend_buffer_type_t) { return true; }
size_t       pinned_alignment(ggml_backend_buffer_type_t) {
    return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
}
ggml_backend_buffer_t pinned_alloc(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer != nullptr) {
        buffer->buft = type;
    }
    return buffer;
}

// --- the stream of a device: does nothing, at once --------------------------------------------------------------------

const char *     stream_name(ggml_backend_t stream) { return of(stream->device).name.c_str(); }
void             stream_free(ggml_backend_t stream) { delete stream; }
void             stream_wait(ggml_backend_t) {}
enum ggml_status stream_compute(ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_SUCCESS; }

ggml_guid g_guid = {0x73, 0x74, 0x61, 0x6e, 0x64, 0x2d, 0x69, 0x6e, 0x20, 0x64, 0x65, 0x76, 0x69, 0x63, 0x65, 0x00};

ggml_backend_t device_stream(ggml_backend_dev_t device, const char *) {
    auto * stream = new ggml_backend{};
    stream->guid                = &g_guid;
    stream->device              = device;
    stream->iface.get_name      = stream_name;
    stream->iface.free          = stream_free;
    stream->iface.synchronize   = stream_wait;
    stream->iface.graph_compute = stream_compute;
    return stream;
}

// --- devices ----------------------------------------------------------------------------------------------------------

const char *               device_name(ggml_backend_dev_t device) { return of(device).name.c_str(); }
const char *               device_description(ggml_backend_dev_t) { return "stand-in GPU"; }
enum ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }
void device_memory(ggml_backend_dev_t device, size_t * free, size_t * total) { *free = *total = of(device).free_bytes; }

void device_properties(ggml_backend_dev_t device, ggml_backend_dev_props * props) {
    *props             = {};
    props->name        = device_name(device);
    props->description = device_description(device);
    props->type        = device_type(device);
    device_memory(device, &props->memory_free, &props->memory_total);
    props->caps.async       = true;
    props->caps.host_buffer = true;
    props->caps.events      = true;
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device) { return &of(device).buffer_type; }
ggml_backend_buffer_type_t device_pinned_type(ggml_backend_dev_t) { return &g_pinned_type; }
bool device_supports(ggml_backend_dev_t, const ggml_tensor * op) { return cuda_rules::supports(op); }
bool device_offloads(ggml_backend_dev_t, const ggml_tensor * op) { return cuda_rules::offloads(op); }
bool device_reads(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) { return type == &of(device).buffer_type; }

ggml_backend_event_t event_new(ggml_backend_dev_t device) { return new ggml_backend_event{device, nullptr}; }
void                 event_free(ggml_backend_dev_t, ggml_backend_event_t event) { delete event; }
void                 event_wait(ggml_backend_dev_t, ggml_backend_event_t) {}

// --- registry ---------------------------------------------------------------------------------------------------------

const char *       registry_name(ggml_backend_reg_t) { return "FAKE"; }
size_t             registry_count(ggml_backend_reg_t) { return MAX_DEVICES; }
ggml_backend_dev_t registry_device(ggml_backend_reg_t, size_t index) { return &g_devices[index].device; }
void *             registry_function(ggml_backend_reg_t, const char *) { return nullptr; }

}  // namespace

void register_devices() {
    g_registry.api_version            = GGML_BACKEND_API_VERSION;
    g_registry.iface.get_name         = registry_name;
    g_registry.iface.get_device_count = registry_count;
    g_registry.iface.get_device       = registry_device;
    g_registry.iface.get_proc_address = registry_function;
    for (int i = 0; i < MAX_DEVICES; ++i) {
        Device & d = g_devices[i];
        d.index    = i;
        d.name     = "FAKE" + std::to_string(i);

        d.buffer_type.device               = &d.device;
        d.buffer_type.context              = &d;
        d.buffer_type.iface.get_name       = type_name;
        d.buffer_type.iface.alloc_buffer   = type_alloc;
        d.buffer_type.iface.get_alignment  = type_alignment;
        d.buffer_type.iface.get_max_size   = type_max_size;
        d.buffer_type.iface.get_alloc_size = type_alloc_size;

        d.device.reg                        = &g_registry;
        d.device.context                    = &d;
        d.device.iface.get_name             = device_name;
        d.device.iface.get_description      = device_description;
        d.device.iface.get_memory           = device_memory;
        d.device.iface.get_type             = device_type;
        d.device.iface.get_props            = device_properties;
        d.device.iface.init_backend         = device_stream;
        d.device.iface.get_buffer_type      = device_buffer_type;
        d.device.iface.get_host_buffer_type = device_pinned_type;
        d.device.iface.supports_op          = device_supports;
        d.device.iface.supports_buft        = device_reads;
        d.device.iface.offload_op           = device_offloads;
        d.device.iface.event_new            = event_new;
        d.device.iface.event_free           = event_free;
        d.device.iface.event_synchronize    = event_wait;
    }
    g_pinned_type.device              = &g_devices[0].device;
    g_pinned_type.iface.get_name      = pinned_name;
    g_pinned_type.iface.alloc_buffer  = pinned_alloc;
    g_pinned_type.iface.get_alignment = pinned_alignment;
    g_pinned_type.iface.is_host       = pinned_is_host;
    ggml_backend_register(&g_registry);
}

std::vector<ggml_backend_dev_t> devices(const std::vector<size_t> & free_bytes) {
    std::vector<ggml_backend_dev_t> chosen;
    for (size_t i = 0; i < free_bytes.size() && i < MAX_DEVICES; ++i) {
        g_devices[i].free_bytes = free_bytes[i];
        chosen.push_back(&g_devices[i].device);
    }
    chosen.push_back(nullptr);
    return chosen;
}

}  // namespace standin
