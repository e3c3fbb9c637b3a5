#include "cpu.h"

#include <stdexcept>

namespace strata {
namespace {

bool has(Isa isa) {
    if (isa == Isa::portable) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (isa == Isa::avx2) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
#else
    return false;
#endif
}

}  // namespace

const char* isa_name(Isa isa) {
    return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "portable";
}

Isa resolve_isa(const std::string& name) {
    std::string able;
    for (Isa isa : {Isa::avx512, Isa::avx2, Isa::portable}) {
        if (!has(isa)) continue;
        if (name == "auto" || name == isa_name(isa)) return isa;
        able += able.empty() ? isa_name(isa) : std::string(", ") + isa_name(isa);
    }
    const bool known = name == "portable" || name == "avx2" || name == "avx512";
    throw std::invalid_argument(known ? "this CPU cannot run the instruction set '" + name + "'; it can run " + able
                                      : "unknown instruction set '" + name +
                                            "'; expected auto, portable, avx2 or avx512");
}

}  // namespace strata
