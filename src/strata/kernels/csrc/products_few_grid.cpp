// Products of few input rows: the grid formats.
#include "products_few_kernel.h"

namespace strata::STRATA_ISA {

template void multiply_few<IQ1_S>(const FewRows&);
template void multiply_few<IQ1_M>(const FewRows&);
template void multiply_few<IQ2_XXS>(const FewRows&);
template void multiply_few<IQ2_XS>(const FewRows&);
template void multiply_few<IQ2_S>(const FewRows&);
template void multiply_few<IQ3_XXS>(const FewRows&);
template void multiply_few<IQ3_S>(const FewRows&);

}  // namespace strata::STRATA_ISA
