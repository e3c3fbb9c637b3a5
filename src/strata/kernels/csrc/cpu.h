// The instruction sets there are variants for, and which of them this CPU can run.
#pragma once

#include <string>

namespace strata {

enum class Isa { portable, avx2, avx512 };

// "auto" gives the best variant the CPU has. Throws std::invalid_argument for an unknown name or a variant that this
// CPU (or build) lacks, with the names that would work.
Isa resolve_isa(const std::string& name);
const char* isa_name(Isa isa);

}  // namespace strata
