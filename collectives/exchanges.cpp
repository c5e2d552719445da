// The table of exchanges, which carry out compressed calls: a line each. Scheme::exchange names
// one.
#include <array>

#include "collectives/compressed.hpp"

namespace pith {

Task<Error> allreduce_coded(Call& call, SparseCall args);
Task<Error> allreduce_varying(Call& call, SparseCall args);
Task<Error> allreduce_low_rank(Call& call, SparseCall args);
Task<Error> allreduce_atomo(Call& call, SparseCall args);
Task<Error> allreduce_topk(Call& call, SparseCall args);
Task<Error> allreduce_threshold(Call& call, SparseCall args);
Task<Error> allreduce_sidco(Call& call, SparseCall args);
Task<Error> allreduce_wangni(Call& call, SparseCall args);
Task<Error> allreduce_adaptive(Call& call, SparseCall args);
Task<Error> allreduce_kept_sums(Call& call, SparseCall args);
Task<Error> allreduce_gtopk(Call& call, SparseCall args);
Task<Error> allreduce_random_k(Call& call, SparseCall args);
Task<Error> allreduce_arc_topk(Call& call, SparseCall args);
Task<Error> allreduce_ar_topk(Call& call, SparseCall args);
Task<Error> allreduce_exdyna(Call& call, SparseCall args);
Task<Error> allreduce_deft(Call& call, SparseCall args);
Task<Error> allreduce_choco(Call& call, SparseCall args);

namespace {

constexpr std::array table{
    SparseExchange{"dense", allreduce_dense},          //
    SparseExchange{"coded", allreduce_coded},          //
    SparseExchange{"varying", allreduce_varying},      //
    SparseExchange{"low-rank", allreduce_low_rank},    //
    SparseExchange{"atomo", allreduce_atomo},          //
    SparseExchange{"topk", allreduce_topk},            //
    SparseExchange{"threshold", allreduce_threshold},  //
    SparseExchange{"sidco", allreduce_sidco},          //
    SparseExchange{"wangni", allreduce_wangni},        //
    SparseExchange{"adaptive", allreduce_adaptive},    //
    SparseExchange{"kept-sums", allreduce_kept_sums},  //
    SparseExchange{"gtopk", allreduce_gtopk},          //
    SparseExchange{"random-k", allreduce_random_k},    //
    SparseExchange{"arc-topk", allreduce_arc_topk},    //
    SparseExchange{"ar-topk", allreduce_ar_topk},      //
    SparseExchange{"exdyna", allreduce_exdyna},        //
    SparseExchange{"deft", allreduce_deft},            //
    SparseExchange{"choco", allreduce_choco},          //
};

}  // namespace

std::span<const SparseExchange> exchanges() { return table; }

}  // namespace pith
