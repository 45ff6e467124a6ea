// Reads settings, one cell a line as key=value words, and prints the memory that the engine accounts for as JSON lines.
//
//   model=PATH free=24576,8192 ngl=33 c=8192 ub=512 np=4 kvu=1 fa=auto no=4 ctk=f16 ctv=f16 ...
//
// The real loader, cache, graph builder, scheduler and allocator run; nothing is allocated. Keys are those of the
// measured cells (tests/data/README.md), and rows=all (see cuda_rules.h). TRUTH_VERBOSE=1 shows the engine's log.
// ots=PATTERN=BUFFER;PATTERN=BUFFER is a list of -ot, tried before ot; no spaces in it.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cuda_rules.h"
#include "ggml-backend.h"
#include "llama-ext.h"
#include "llama.h"
#include "standin.h"

namespace {

// One line of settings.
class Cell {
  public:
    explicit Cell(const std::string & line) {
        std::stringstream words(line);
        for (std::string word; words >> word;) {
            const size_t equals = word.find('=');
            if (equals != std::string::npos) {
                values_[word.substr(0, equals)] = word.substr(equals + 1);
            }
        }
    }
    std::string text(const std::string & key, const std::string & otherwise = "") const {
        const auto found = values_.find(key);
        return found == values_.end() ? otherwise : found->second;
    }
    long number(const std::string & key, long otherwise) const {
        const auto found = values_.find(key);
        return found == values_.end() ? otherwise : std::atol(found->second.c_str());
    }
    std::vector<double> list(const std::string & key) const {
        std::vector<double> numbers;
        std::stringstream   items(text(key));
        for (std::string item; std::getline(items, item, ',');) {
            numbers.push_back(std::atof(item.c_str()));
        }
        return numbers;
    }

  private:
    std::map<std::string, std::string> values_;
};

ggml_type type_named(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const char * known = ggml_type_name(static_cast<ggml_type>(i));
        if (known != nullptr && name == known) {
            return static_cast<ggml_type>(i);
        }
    }
    std::fprintf(stderr, "no such type: %s\n", name.c_str());
    std::exit(2);
}

// A loaded model, kept while the settings that concern loading stay the same. The engine keeps pointers into the lists.
class Model {
  public:
    ~Model() { llama_model_free(model_); }

    llama_model * load(const Cell & cell) {
        std::string key;
        for (const char * name : {"model", "free", "ngl", "ts", "ot", "ots", "sm", "mg", "extra", "rows"}) {
            key += cell.text(name) + '\n';
        }
        if (key == key_) {
            return model_;
        }
        key_ = key;
        llama_model_free(model_);

        std::vector<size_t> free_bytes;
        for (const double mib : cell.list("free")) {
            free_bytes.push_back(static_cast<size_t>(mib) << 20);
        }
        cuda_rules::look_up_all_types(cell.text("rows") == "all");
        devices_ = standin::devices(free_bytes);
        const std::vector<double> shares = cell.list("ts");
        split_.assign(shares.begin(), shares.end());
        split_.resize(llama_max_devices(), 0.0f);
        read_overrides(cell);

        llama_model_params params = llama_model_default_params();
        params.no_alloc        = true;
        params.load_mode       = LLAMA_LOAD_MODE_NONE;
        params.load_mtp        = false;
        params.devices         = devices_.data();
        params.n_gpu_layers    = static_cast<int32_t>(cell.number("ngl", -1));
        params.tensor_split    = split_.data();
        params.use_extra_bufts = cell.number("extra", 1) != 0;
        params.split_mode = cell.text("sm") == "none" ? LLAMA_SPLIT_MODE_NONE : LLAMA_SPLIT_MODE_LAYER;
        params.main_gpu   = static_cast<int32_t>(cell.number("mg", 0));
        if (overrides_.size() > 1) {
            params.tensor_buft_overrides = overrides_.data();
        }
        model_ = llama_model_load_from_file(cell.text("model").c_str(), params);
        return model_;
    }

  private:
    // Buffers are CPU or the name of a device, which is that of its buffer type too.
    void read_overrides(const Cell & cell) {
        patterns_.clear();
        overrides_.clear();
        std::stringstream items(cell.text("ots"));
        for (std::string item; std::getline(items, item, ';');) {
            const size_t equals = item.rfind('=');
            add_override(item.substr(0, equals), item.substr(equals + 1));
        }
        if (!cell.text("ot").empty()) {
            add_override(cell.text("ot"), "CPU");
        }
        overrides_.push_back({nullptr, nullptr});
    }

    void add_override(const std::string & pattern, const std::string & buffer) {
        ggml_backend_dev_t device = ggml_backend_dev_by_name(buffer.c_str());
        if (device == nullptr) {
            std::fprintf(stderr, "no such buffer: %s\n", buffer.c_str());
            std::exit(2);
        }
        patterns_.push_back(pattern);
        overrides_.push_back({patterns_.back().c_str(), ggml_backend_dev_buffer_type(device)});
    }

    std::string                                   key_;
    std::deque<std::string>                       patterns_;
    std::vector<ggml_backend_dev_t>               devices_;
    std::vector<float>                            split_;
    std::vector<llama_model_tensor_buft_override> overrides_;
    llama_model *                                 model_ = nullptr;
};

llama_context_params context_params(const Cell & cell) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx         = static_cast<uint32_t>(cell.number("c", 4096));
    params.n_batch       = static_cast<uint32_t>(cell.number("b", 2048));
    params.n_ubatch      = static_cast<uint32_t>(cell.number("ub", 512));
    params.n_seq_max     = static_cast<uint32_t>(cell.number("np", 1));
    params.n_outputs_max = static_cast<uint32_t>(cell.number("no", 0));
    params.kv_unified    = cell.number("kvu", 0) != 0;
    params.swa_full      = cell.number("swafull", 0) != 0;
    params.offload_kqv   = cell.number("kvo", 1) != 0;
    params.op_offload    = cell.number("opo", 1) != 0;
    params.type_k        = type_named(cell.text("ctk", "f16"));
    params.type_v        = type_named(cell.text("ctv", "f16"));
    const std::string flash = cell.text("fa", "auto");
    params.flash_attn_type  = flash == "auto" ? LLAMA_FLASH_ATTN_TYPE_AUTO
                              : flash == "0"  ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                              : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    return params;
}

void measure(const Cell & cell, Model & loaded) {
    llama_model * model = loaded.load(cell);
    if (model == nullptr) {
        std::printf("{\"error\":\"model\"}\n");
        return;
    }
    llama_context * context = llama_init_from_model(model, context_params(cell));
    if (context == nullptr) {
        std::printf("{\"error\":\"ctx\"}\n");
        return;
    }
    std::map<std::string, llama_memory_breakdown_data> buffers;
    for (const auto & [type, data] : llama_get_memory_breakdown(context)) {
        auto & sum = buffers[ggml_backend_buft_name(type)];
        sum.model += data.model;
        sum.context += data.context;
        sum.compute += data.compute;
    }
    std::printf("{\"n_ctx\":%u,\"n_ctx_seq\":%u,\"bufs\":{", llama_n_ctx(context), llama_n_ctx_seq(context));
    const char * comma = "";
    for (const auto & [name, data] : buffers) {
        std::printf("%s\"%s\":[%zu,%zu,%zu]", comma, name.c_str(), data.model, data.context, data.compute);
        comma = ",";
    }
    std::printf("}}\n");
    llama_free(context);
}

void log_line(ggml_log_level, const char * text, void *) {
    if (std::getenv("TRUTH_VERBOSE") != nullptr) {
        std::fputs(text, stderr);
    }
}

}  // namespace

int main() {
    llama_log_set(log_line, nullptr);
    standin::register_devices();
    Model loaded;
    for (std::string line; std::getline(std::cin, line);) {
        measure(Cell(line), loaded);
        std::fflush(stdout);
    }
    return 0;
}
