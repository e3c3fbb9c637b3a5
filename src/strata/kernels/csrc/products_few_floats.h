// products_few.h for weights that hold plain floats. Made where there are vectors of floats; `formats` have null
// elsewhere.
#pragma once

#include "products.h"

namespace strata::STRATA_ISA {

void few_f32(const FewRows& job);
void few_f16(const FewRows& job);
void few_bf16(const FewRows& job);
void few_e4m3(const FewRows& job);
void few_e4m3_blocks(const FewRows& job);

}  // namespace strata::STRATA_ISA
