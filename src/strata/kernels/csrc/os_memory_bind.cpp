// Bindings of os_memory.h. Addresses are those of mappings and arrays that the caller keeps alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "os_memory.h"

namespace nb = nanobind;

namespace strata {

void bind_os_memory(nb::module_& m) {
    m.def("advise_huge",
          [](uintptr_t data, size_t bytes) { return advise_huge(reinterpret_cast<void*>(data), bytes); });
    m.def(
        "populate", [](uintptr_t data, size_t bytes) { return populate(reinterpret_cast<void*>(data), bytes); },
        nb::call_guard<nb::gil_scoped_release>());
    m.def(
        "resident", [](uintptr_t data, size_t bytes) { return resident(reinterpret_cast<void*>(data), bytes); },
        nb::call_guard<nb::gil_scoped_release>());
    m.def("set_memory_policy", &set_memory_policy);
}

}  // namespace strata
