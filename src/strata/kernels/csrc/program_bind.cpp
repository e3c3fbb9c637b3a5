// Binding of recorded programs.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {

void bind_program(nb::module_& m) {
    using Free = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Program>(m, "Program")
        .def(nb::init<>())
        .def("begin", [](Program& program, Native& native) { native.record(&program); })
        .def("end", [](Program&, Native& native) { native.record(nullptr); })
        .def("run", [](Program& program, Native& native) {
            const Pool::Hot awake(native.pool());
            program.run(native);
        }, Free())
        .def("run_apart", [](Program& program, Native& native) {
            program.run_apart(native);
        }, Free())
        .def("finish", [](Program&, Native& native) { native.pool().finish(); }, Free())
        .def("run_timed", &Program::run_timed, Free())
        .def("times", [](const Program& program) {
            std::vector<std::pair<std::string, int64_t>> found;
            for (const auto& [name, nanoseconds] : program.times()) found.emplace_back(name, nanoseconds);
            return found;
        })
        .def("__len__", &Program::size);
}

}  // namespace strata
