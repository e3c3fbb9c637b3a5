// Products of few input rows: the K-quants.
#include "products_few_all.h"

namespace strata::STRATA_ISA {

template void multiply_few<Q2_K>(const FewRows&);
template void multiply_few<Q3_K>(const FewRows&);
template void multiply_few<Q4_K>(const FewRows&);
template void multiply_few<Q5_K>(const FewRows&);
template void multiply_few<Q6_K>(const FewRows&);

}  // namespace strata::STRATA_ISA
