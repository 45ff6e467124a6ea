// Dry runs of llama_model_quantize over one GGUF, without an importance matrix and with a dummy one.
// usage: dry_run MODEL.gguf FILE_TYPE...   prints "== FILE_TYPE IMATRIX STATUS" and then the engine's own log
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <string>

static std::string log_text;

static void keep(ggml_log_level, const char * text, void *) {
    log_text += text;
}

int main(int argc, char ** argv) {
    llama_backend_init();
    llama_log_set(keep, nullptr);
    const float one = 1.0f;
    const llama_model_imatrix_data dummy[] = { { "none", &one, 1 }, { nullptr, nullptr, 0 } };
    for (int i = 2; i < argc; ++i) {
        for (int imatrix = 0; imatrix < 2; ++imatrix) {
            log_text.clear();
            llama_model_quantize_params params = llama_model_quantize_default_params();
            params.ftype   = static_cast<llama_ftype>(std::atoi(argv[i]));
            params.dry_run = true;
            params.nthread = 1;
            params.imatrix = imatrix ? dummy : nullptr;
            const unsigned status = llama_model_quantize(argv[1], "", &params);
            std::printf("== %s %d %u\n%s", argv[i], imatrix, status, log_text.c_str());
        }
    }
    return 0;
}
