// The table of the dense collectives' algorithms, two lines each. It is in a header so that a
// look-up by name can be done at compile time. ADDING.md says how to add one.
#pragma once

#include <array>

#include "collectives/algorithm.hpp"
#include "collectives/dense/handle_exchange.hpp"

namespace pith {

// One line per algorithm file: `<collective>_<name>` and its cost.
#define PITH_ALGORITHM(name)                         \
  Task<Error> name(Call& call, CollectiveArgs args); \
  double name##_cost(const Shape& shape, const LinkCost& link)
PITH_ALGORITHM(allreduce_recursive_doubling);
PITH_ALGORITHM(allreduce_direct);
PITH_ALGORITHM(allreduce_one_shot);
PITH_ALGORITHM(allreduce_two_shot);
PITH_ALGORITHM(allreduce_ring);
PITH_ALGORITHM(allreduce_rabenseifner);
PITH_ALGORITHM(allreduce_double_tree);
PITH_ALGORITHM(allreduce_hierarchical);
PITH_ALGORITHM(broadcast_binomial);
PITH_ALGORITHM(broadcast_chain);
PITH_ALGORITHM(broadcast_views);
PITH_ALGORITHM(broadcast_hierarchical);
PITH_ALGORITHM(allgather_direct);
PITH_ALGORITHM(allgather_ring);
PITH_ALGORITHM(allgather_bruck);
PITH_ALGORITHM(allgather_views);
PITH_ALGORITHM(allgather_hierarchical);
PITH_ALGORITHM(barrier_dissemination);
PITH_ALGORITHM(barrier_hierarchical);
PITH_ALGORITHM(reduce_tree);
PITH_ALGORITHM(reduce_hierarchical);
PITH_ALGORITHM(reduce_scatter_direct);
PITH_ALGORITHM(reduce_scatter_ring);
PITH_ALGORITHM(reduce_scatter_recursive_halving);
PITH_ALGORITHM(reduce_scatter_views);
PITH_ALGORITHM(reduce_scatter_hierarchical);
PITH_ALGORITHM(alltoall_pairwise);
PITH_ALGORITHM(alltoall_views);
PITH_ALGORITHM(alltoall_hierarchical);
PITH_ALGORITHM(gather_binomial);
PITH_ALGORITHM(scatter_binomial);
PITH_ALGORITHM(scan_recursive_doubling);
PITH_ALGORITHM(scan_chain);
PITH_ALGORITHM(exscan_recursive_doubling);
PITH_ALGORITHM(exscan_chain);
#undef PITH_ALGORITHM

inline constexpr std::array algorithm_table{
    Algorithm{"recursive_doubling", Collective::allreduce, allreduce_recursive_doubling,
              allreduce_recursive_doubling_cost, SendPattern::partners, any_ranks, false,
              HostNeed::none, true},
    Algorithm{"direct", Collective::allreduce, allreduce_direct, allreduce_direct_cost,
              SendPattern::everyone, most_view_ranks, false, HostNeed::none, true},
    Algorithm{"one_shot", Collective::allreduce, allreduce_one_shot, allreduce_one_shot_cost,
              SendPattern::everyone, most_view_ranks, false, HostNeed::none, true},
    Algorithm{"two_shot", Collective::allreduce, allreduce_two_shot, allreduce_two_shot_cost,
              SendPattern::everyone, most_view_ranks, true},
    Algorithm{"ring", Collective::allreduce, allreduce_ring, allreduce_ring_cost,
              SendPattern::neighbours},
    Algorithm{"rabenseifner", Collective::allreduce, allreduce_rabenseifner,
              allreduce_rabenseifner_cost},
    Algorithm{"double_tree", Collective::allreduce, allreduce_double_tree,
              allreduce_double_tree_cost},
    Algorithm{"hierarchical", Collective::allreduce, allreduce_hierarchical,
              allreduce_hierarchical_cost, SendPattern::partners, any_ranks, false, HostNeed::even},
    Algorithm{"binomial", Collective::broadcast, broadcast_binomial, broadcast_binomial_cost,
              SendPattern::partners, any_ranks, false, HostNeed::none, true},
    Algorithm{"chain", Collective::broadcast, broadcast_chain, broadcast_chain_cost,
              SendPattern::neighbours},
    Algorithm{"views", Collective::broadcast, broadcast_views, broadcast_views_cost,
              SendPattern::neighbours, most_view_ranks, true, HostNeed::none, false, true},
    Algorithm{"hierarchical", Collective::broadcast, broadcast_hierarchical,
              broadcast_hierarchical_cost, SendPattern::neighbours, any_ranks, false,
              HostNeed::several},
    Algorithm{"direct", Collective::allgather, allgather_direct, allgather_direct_cost,
              SendPattern::everyone, most_view_ranks, false, HostNeed::none, true, true},
    Algorithm{"ring", Collective::allgather, allgather_ring, allgather_ring_cost,
              SendPattern::neighbours},
    Algorithm{"bruck", Collective::allgather, allgather_bruck, allgather_bruck_cost},
    Algorithm{"views", Collective::allgather, allgather_views, allgather_views_cost,
              SendPattern::everyone, most_view_ranks, true},
    Algorithm{"hierarchical", Collective::allgather, allgather_hierarchical,
              allgather_hierarchical_cost, SendPattern::partners, any_ranks, false,
              HostNeed::several},
    Algorithm{"dissemination", Collective::barrier, barrier_dissemination,
              barrier_dissemination_cost},
    Algorithm{"hierarchical", Collective::barrier, barrier_hierarchical, barrier_hierarchical_cost,
              SendPattern::partners, any_ranks, false, HostNeed::several},
    Algorithm{"tree", Collective::reduce, reduce_tree, reduce_tree_cost},
    Algorithm{"hierarchical", Collective::reduce, reduce_hierarchical, reduce_hierarchical_cost,
              SendPattern::neighbours, any_ranks, false, HostNeed::several},
    Algorithm{"direct", Collective::reduce_scatter, reduce_scatter_direct,
              reduce_scatter_direct_cost, SendPattern::everyone, most_view_ranks, false,
              HostNeed::none, true, true},
    Algorithm{"ring", Collective::reduce_scatter, reduce_scatter_ring, reduce_scatter_ring_cost,
              SendPattern::neighbours},
    Algorithm{"recursive_halving", Collective::reduce_scatter, reduce_scatter_recursive_halving,
              reduce_scatter_recursive_halving_cost},
    Algorithm{"views", Collective::reduce_scatter, reduce_scatter_views, reduce_scatter_views_cost,
              SendPattern::everyone, most_view_ranks, true},
    Algorithm{"hierarchical", Collective::reduce_scatter, reduce_scatter_hierarchical,
              reduce_scatter_hierarchical_cost, SendPattern::partners, any_ranks, false,
              HostNeed::several},
    Algorithm{"pairwise", Collective::alltoall, alltoall_pairwise, alltoall_pairwise_cost,
              SendPattern::everyone},
    Algorithm{"views", Collective::alltoall, alltoall_views, alltoall_views_cost,
              SendPattern::everyone, most_view_ranks, true},
    Algorithm{"hierarchical", Collective::alltoall, alltoall_hierarchical,
              alltoall_hierarchical_cost, SendPattern::everyone, any_ranks, false,
              HostNeed::several},
    Algorithm{"binomial", Collective::gather, gather_binomial, gather_binomial_cost},
    Algorithm{"binomial", Collective::scatter, scatter_binomial, scatter_binomial_cost},
    Algorithm{"recursive_doubling", Collective::scan, scan_recursive_doubling,
              scan_recursive_doubling_cost, SendPattern::partners, any_ranks, false, HostNeed::none,
              true},
    Algorithm{"chain", Collective::scan, scan_chain, scan_chain_cost, SendPattern::neighbours},
    Algorithm{"recursive_doubling", Collective::exscan, exscan_recursive_doubling,
              exscan_recursive_doubling_cost, SendPattern::partners, any_ranks, false,
              HostNeed::none, true},
    Algorithm{"chain", Collective::exscan, exscan_chain, exscan_chain_cost,
              SendPattern::neighbours},
};

}  // namespace pith
