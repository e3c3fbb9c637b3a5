// What each group of operations adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace strata {

void bind_products(nanobind::module_& m);     // products_bind.cpp
void bind_layers(nanobind::module_& m);       // layers_bind.cpp
void bind_attention(nanobind::module_& m);    // attention_bind.cpp
void bind_elementwise(nanobind::module_& m);  // elementwise_bind.cpp
void bind_rows(nanobind::module_& m);         // rows_bind.cpp
void bind_choose(nanobind::module_& m);       // choose_bind.cpp
void bind_program(nanobind::module_& m);      // program_bind.cpp
void bind_os_memory(nanobind::module_& m);    // os_memory_bind.cpp
void bind_answerer(nanobind::module_& m);     // answerer_bind.cpp

}  // namespace strata
