// Products of few input rows: blocks of 32 values, IQ4_XS and the ternary formats.
#include "products_few_all.h"

namespace strata::STRATA_ISA {

template void multiply_few<Q4_0>(const FewRows&);
template void multiply_few<Q4_1>(const FewRows&);
template void multiply_few<Q5_0>(const FewRows&);
template void multiply_few<Q5_1>(const FewRows&);
template void multiply_few<Q8_0>(const FewRows&);
template void multiply_few<Q2_0>(const FewRows&);
template void multiply_few<IQ4_NL>(const FewRows&);
template void multiply_few<IQ4_XS>(const FewRows&);
template void multiply_few<MXFP4>(const FewRows&);
template void multiply_few<NVFP4>(const FewRows&);
template void multiply_few<TQ1_0>(const FewRows&);
template void multiply_few<TQ2_0>(const FewRows&);

}  // namespace strata::STRATA_ISA
