// linear and experts for many rows of input (prompt chunks): products_prompt.cpp.
#pragma once

#include "products.h"

namespace strata::STRATA_ISA {

void prompt_linear(Context context, const LinearJob& job);
void prompt_experts(Context context, const ExpertsJob& job);

}  // namespace strata::STRATA_ISA
