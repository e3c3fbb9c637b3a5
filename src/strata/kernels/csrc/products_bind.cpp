// Bindings of the quantised products: linear, experts, embed, activate.
#include "bind.h"

namespace strata {

void bind_products(nanobind::module_&) {}

}  // namespace strata
