// Some rows of one weight with few rows of the input. A group of codes goes from the packed bytes through
// registers into the sums of every input row; nothing is stored in between. With one input row the memory is the limit,
// so what decides is that the loads run evenly.
#pragma once

#include "products.h"

namespace strata::STRATA_ISA {

// Input rows of one weight that are multiplied at once. A job whose weights meet more of them (experts: on average) is
// a prompt's: a matrix of 1,024 columns takes as long then either way, experts that meet two rows each half as long
// here.
constexpr int64_t few_rows = 8;

// Made in products_few_*.cpp; does nothing in the portable variant, whose `formats` have null instead.
template <class F>
void multiply_few(const FewRows& job);

}  // namespace strata::STRATA_ISA
