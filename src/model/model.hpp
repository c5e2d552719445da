// Chooses for a communicator's calls: the algorithm, chunk sizes, and whether a compressed call is
// made dense. Sees only what all ranks agree on. Set up during start-up, constant while calls run.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "model/choices.hpp"
#include "model/forced_algorithms.hpp"
#include "model/found_algorithms.hpp"
#include "model/known_links.hpp"
#include "model/nominal.hpp"
#include "settings/settings.hpp"

namespace pith {

// What follows from these. Of a link that is `near` it is known that messages do not travel long:
// what they take is time of cores, and half of it is taken by each further message of a round.
LinkCost link_with(double alpha, double beta, double gamma = nominal::wire.gamma,
                   bool near = false);

class Model final : public Chooser {
 public:
  // With PITH_DETERMINISTIC only the arguments of a call decide, so that every run has the same
  // bits.
  Model(const Settings& settings, int ranks);
  explicit Model(int ranks) : Model(Settings(), ranks) {}

  // Forces algorithms by PITH_ALGO; see read_forced_algorithms.
  Error force(const std::string& text);
  // Whether all ranks reach each other's memory.
  void set_views(bool views);
  // False with PITH_DETERMINISTIC, as choices must not depend on it then.
  bool views() const { return views_; }
  void set_oversubscribed(bool oversubscribed) { oversubscribed_ = oversubscribed && !pinned_; }
  // `hosts`: how many run ranks; `ranks_a_host`: how many ranks one of them runs at most; `share`:
  // whether the ranks of a host share memory.
  void set_hosts(int hosts, int ranks_a_host, bool share = true);
  // The longest time that a message to any rank and its answer take without load; 0: not known.
  // Without views it decides, where it is far from the nominal, what a message costs.
  void set_round_trip(double seconds);
  // Whether it is known to be no longer than on common hosts.
  bool is_near() const { return near_; }
  // What messages cost is known; without views.
  void set_link(double alpha, double beta);
  // What an earlier run has told, after all of the above. A message takes no less than the round
  // trip says. Nothing is taken from it with PITH_DETERMINISTIC.
  void set_known(const KnownLinks& known);
  // As set.
  const KnownLinks& known() const { return known_; }
  void set_devices(bool devices) { devices_ = devices && !pinned_; }

  int ranks() const { return ranks_; }
  // Whether choices may change while calls run.
  bool learns() const { return learns_ && !devices_; }
  // Whether choices that change are logged.
  bool explains() const { return explains_; }
  const Tuning& tuning() const { return tuning_; }
  Shape shape(std::size_t bytes) const;
  // What choices take for the cost of messages.
  const LinkCost& link() const { return link_; }
  const Algorithm& algorithm(Collective collective, std::size_t bytes) const override;
  // As planned, else by this model's own choice.
  const Algorithm& algorithm(const CollectiveArgs& args) const {
    if (args.plan.algorithm) return *args.plan.algorithm;
    return algorithm(args.collective, args.count * size_of(args.type));
  }
  bool is_forced(Collective collective) const {
    return forced_[static_cast<std::size_t>(collective)] != nullptr;
  }
  // Seconds that the call takes on a link; null: on link().
  double cost(const Algorithm& algorithm, std::size_t bytes, Variant variant = Variant::usual,
              const LinkCost* link = nullptr) const;
  // What calls begin with: this model's own choice, and as its rivals the algorithms that may be
  // faster, by a cost function that may be wrong. No rivals where the choice is not the library's,
  // or where times of calls tell nothing.
  Choices start() const;
  // The same once the link is known to be another one, of calls of a size.
  Choices::Cell cell_on(const LinkCost& link, Collective collective, SizeClass size) const;
  bool is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const override;
  double predicted_seconds(const Spec& spec, std::size_t count, bool dense, const Hosts* hosts,
                           const LinkSums& earlier) const override;
  // With PITH_DETERMINISTIC by gains and nominal links alone.
  void adapt_density(const Spec& spec, std::size_t count, const DensityFacts& facts,
                     DensityControl& control) const override;

  // With PITH_DETERMINISTIC, and where no link would make it otherwise, never measured.
  BypassControl start_bypass(const Spec& spec, std::size_t count,
                             std::uint64_t step) const override;
  void adapt_bypass(const Spec& spec, const BypassFacts& facts,
                    BypassControl& control) const override;

 private:
  const int ranks_;
  const bool pinned_;
  const bool learns_;
  const bool explains_;
  const std::size_t chunk_;  // as set; 0: depends on the transport
  const int lanes_;          // the same
  Tuning tuning_;
  ForcedAlgorithms forced_{};
  bool views_ = false;
  bool oversubscribed_ = false;
  int hosts_ = 1;
  int ranks_a_host_ = 1;
  bool hosts_share_ = true;
  bool devices_ = false;
  bool near_ = false;
  LinkCost link_;
  KnownLinks known_;
  mutable FoundAlgorithms cheapest_;
};

// Of all calls.
Choices choices_on(const LinkCost& link, const Model& model);

}  // namespace pith
