// Products of few input rows: the grid formats.
#include "products_few_all.h"
#include "products_few_iq3.h"

namespace strata::STRATA_ISA {

#if STRATA_AVX512

template <> void multiply_few<IQ1_S>(const FewRows& job) { grid_rows<IQ1_S>(job); }
template <> void multiply_few<IQ1_M>(const FewRows& job) { grid_rows<IQ1_M>(job); }
template <> void multiply_few<IQ2_XXS>(const FewRows& job) { grid_rows<IQ2_XXS>(job); }
template <> void multiply_few<IQ2_XS>(const FewRows& job) { grid_rows<IQ2_XS>(job); }
template <> void multiply_few<IQ2_S>(const FewRows& job) { grid_rows<IQ2_S>(job); }
template <> void multiply_few<IQ3_XXS>(const FewRows& job) { grid_rows<IQ3_XXS>(job); }
template <> void multiply_few<IQ3_S>(const FewRows& job) {
    int8_t* q = static_cast<int8_t*>(job.scratch);
    index_inputs(job, q);
    all_rows<NibbleKernel>(job, q, job.groups * 512);
}

#else

template void multiply_few<IQ1_S>(const FewRows&);
template void multiply_few<IQ1_M>(const FewRows&);
template void multiply_few<IQ2_XXS>(const FewRows&);
template void multiply_few<IQ2_XS>(const FewRows&);
template void multiply_few<IQ2_S>(const FewRows&);
template void multiply_few<IQ3_XXS>(const FewRows&);
template void multiply_few<IQ3_S>(const FewRows&);

#endif

}  // namespace strata::STRATA_ISA
