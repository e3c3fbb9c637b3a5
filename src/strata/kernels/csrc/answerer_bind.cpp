// Bindings of the answering thread.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "answerer.h"
#include "bind.h"

namespace nb = nanobind;

namespace strata {

void bind_answerer(nb::module_& m) {
    using Free = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Answerer>(m, "Answerer")
        .def(
            "__init__",
            [](Answerer* self, Native& native, const std::map<int64_t, const Bank*>& banks, uintptr_t box,
               uintptr_t ids, uintptr_t x, uintptr_t answers, int64_t most_rows, int64_t most_entries, int64_t hidden,
               int64_t spin_us) {
                const Place place{reinterpret_cast<Mailbox*>(box),     reinterpret_cast<const int32_t*>(ids),
                                  reinterpret_cast<const float*>(x),   reinterpret_cast<float*>(answers),
                                  most_rows, most_entries, hidden};
                new (self) Answerer(native, place, banks, spin_us);
            },
            nb::keep_alive<1, 2>())
        .def("drain", &Answerer::drain)
        .def("failure", &Answerer::failure)
        .def("stall", &Answerer::stall)
        .def("use", &Answerer::use);
    m.attr("mailbox_bytes") = sizeof(Mailbox);
    m.def("experts_apart", [](Native& native, const Bank& bank, uintptr_t x, int64_t rows, uintptr_t ids, int top_k,
                              uintptr_t outputs) {
        return run_experts_apart(native, bank, {reinterpret_cast<const float*>(x), rows,
                                                reinterpret_cast<const int32_t*>(ids), top_k},
                                 reinterpret_cast<float*>(outputs));
    }, Free());
}

}  // namespace strata
