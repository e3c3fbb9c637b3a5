// What each group of operations adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace strata {

void bind_products(nanobind::module_& m);   // products_bind.cpp
void bind_layers(nanobind::module_& m);     // layers_bind.cpp
void bind_attention(nanobind::module_& m);  // attention_bind.cpp

}  // namespace strata
