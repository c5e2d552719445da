// The table of compression schemes, one line each; the library needs no other registration.
#include <array>

#include "compress/scheme.hpp"

namespace pith {

extern const Scheme bf16_scheme;
extern const Scheme fp16_scheme;
extern const Scheme int8_scheme;
extern const Scheme fp8_scheme;
extern const Scheme qsgd_scheme;
extern const Scheme terngrad_scheme;
extern const Scheme natural_scheme;
extern const Scheme sign_scheme;
extern const Scheme signum_scheme;
extern const Scheme efsign_scheme;
extern const Scheme onebit_scheme;
extern const Scheme three_lc_scheme;
extern const Scheme bounded_scheme;
extern const Scheme lossless_scheme;
extern const Scheme powersgd_scheme;
extern const Scheme atomo_scheme;
extern const Scheme topk_scheme;
extern const Scheme threshold_scheme;
extern const Scheme sidco_scheme;
extern const Scheme dgc_scheme;
extern const Scheme wangni_scheme;
extern const Scheme adaptive_scheme;
extern const Scheme spardl_scheme;
extern const Scheme ok_topk_scheme;
extern const Scheme gtopk_scheme;
extern const Scheme random_k_scheme;
extern const Scheme arc_topk_scheme;
extern const Scheme ar_topk_scheme;
extern const Scheme clt_k_scheme;
extern const Scheme exdyna_scheme;
extern const Scheme micro_scheme;
extern const Scheme deft_scheme;
extern const Scheme choco_scheme;

namespace {

constexpr std::array table{
    &none_scheme,       //
    &bf16_scheme,       //
    &fp16_scheme,       //
    &int8_scheme,       //
    &fp8_scheme,        //
    &qsgd_scheme,       //
    &terngrad_scheme,   //
    &natural_scheme,    //
    &sign_scheme,       //
    &signum_scheme,     //
    &efsign_scheme,     //
    &onebit_scheme,     //
    &three_lc_scheme,   //
    &bounded_scheme,    //
    &lossless_scheme,   //
    &powersgd_scheme,   //
    &atomo_scheme,      //
    &topk_scheme,       //
    &threshold_scheme,  //
    &sidco_scheme,      //
    &dgc_scheme,        //
    &wangni_scheme,     //
    &adaptive_scheme,   //
    &spardl_scheme,     //
    &ok_topk_scheme,    //
    &gtopk_scheme,      //
    &random_k_scheme,   //
    &arc_topk_scheme,   //
    &ar_topk_scheme,    //
    &clt_k_scheme,      //
    &exdyna_scheme,     //
    &micro_scheme,      //
    &deft_scheme,       //
    &auto_scheme,       //
    &choco_scheme,      //
};

}  // namespace

std::span<const Scheme* const> schemes() { return table; }

}  // namespace pith
