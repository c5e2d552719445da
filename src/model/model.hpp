// Chooses for a communicator's calls: the algorithm, chunk sizes, and whether a compressed call is
// made dense. Sees only what all ranks agree on. Set up during start-up, constant while calls run.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "model/forced_algorithms.hpp"
#include "settings/settings.hpp"

namespace pith {

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
  void set_multi_host(bool multi_host) { multi_host_ = multi_host && !pinned_; }
  void set_devices(bool devices) { devices_ = devices && !pinned_; }

  const Tuning& tuning() const { return tuning_; }
  Shape shape(std::size_t bytes) const;
  const Algorithm& algorithm(Collective collective, std::size_t bytes) const override;
  const Algorithm& algorithm(const CollectiveArgs& args) const {
    return algorithm(args.collective, args.count * size_of(args.type));
  }
  // The same by the collective's name, which must be zero-terminated; null: no such collective.
  const Algorithm* algorithm(std::string_view collective, std::size_t bytes) const;
  bool is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const override;

 private:
  const int ranks_;
  const bool pinned_;
  const std::size_t chunk_;  // as set; 0: depends on the transport
  Tuning tuning_;
  ForcedAlgorithms forced_{};
  bool views_ = false;
  bool oversubscribed_ = false;
  bool multi_host_ = false;
  bool devices_ = false;
};

}  // namespace pith
