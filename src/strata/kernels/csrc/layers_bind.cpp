// Bindings of norms, rope, attention, convolution, the delta rule and the other layer operations.
#include "bind.h"

namespace strata {

void bind_layers(nanobind::module_&) {}

}  // namespace strata
