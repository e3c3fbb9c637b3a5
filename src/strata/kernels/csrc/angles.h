// Sine and cosine in float64 as written operations: kernels/rope/naive.py is the specification. Every processor gives
// the same bits, which no two math libraries promise.
#pragma once

#include <stdint.h>

#ifndef STRATA_INLINE
#define STRATA_INLINE static inline
#endif

namespace strata::STRATA_ISA {

STRATA_INLINE void sine_cosine(double angle, double& sine, double& cosine) {
    // Round half to even, for |x| < 2^51.
    const double quarters = (angle * 0.6366197723675814 + 6755399441055744.0) - 6755399441055744.0;
    double r = angle - quarters * 1.5707963407039642;
    r = r - quarters * -1.3909067675399456e-08;
    r = r - quarters * 6.123233995736766e-17;
    const double z = r * r;
    double s = 2.8114572543455206e-15;
    s = s * z + -7.647163731819816e-13;
    s = s * z + 1.6059043836821613e-10;
    s = s * z + -2.505210838544172e-08;
    s = s * z + 2.7557319223985893e-06;
    s = s * z + -0.0001984126984126984;
    s = s * z + 0.008333333333333333;
    s = s * z + -0.16666666666666666;
    s = r + (r * z) * s;
    double c = 4.779477332387385e-14;
    c = c * z + -1.1470745597729725e-11;
    c = c * z + 2.08767569878681e-09;
    c = c * z + -2.755731922398589e-07;
    c = c * z + 2.48015873015873e-05;
    c = c * z + -0.001388888888888889;
    c = c * z + 0.041666666666666664;
    c = (1.0 - 0.5 * z) + (z * z) * c;
    const int64_t quadrant = static_cast<int64_t>(quarters) & 3;
    const double first = quadrant & 1 ? c : s, second = quadrant & 1 ? s : c;
    sine = quadrant & 2 ? -first : first;
    cosine = (quadrant + 1) & 2 ? -second : second;
}

}  // namespace strata::STRATA_ISA
