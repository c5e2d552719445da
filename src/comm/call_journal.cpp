#include "comm/call_journal.hpp"

namespace pith {

void CallJournal::begin(RunningCall&, std::uint32_t number, std::uint64_t digest,
                        const CollectiveArgs& args) {
  recorder_.begin(number, digest, args);
  if (CallTrace* const trace = links_.trace()) {
    const std::string_view algorithm =
        args.wire.is_used() ? args.wire.name() : links_.model().algorithm(args).name;
    trace->begin(number, args, algorithm);
  }
}

void CallJournal::begin(RunningCall&, std::uint32_t number, std::uint64_t digest,
                        const CompressedArgs& args) {
  recorder_.begin(number, digest, args.tensors);
  if (CallTrace* const trace = links_.trace()) trace->begin(number, args);
}

void CallJournal::begin(RunningCall& running, std::uint32_t number, std::uint64_t,
                        const PairArgs& args) {
  running.messages = recorder_.begin(args.messages);
  if (CallTrace* const trace = links_.trace()) trace->begin(number, args);
}

void CallJournal::begin_split(std::uint32_t number) {
  const CollectiveArgs args{.collective = Collective::split};
  links_.engine().own();
  recorder_.begin(number, digest_of(args), args);
  links_.engine().disown();
}

void CallJournal::end_split(std::uint32_t number, bool well) {
  links_.engine().own();
  recorder_.end(number, well);
  links_.engine().disown();
}

}  // namespace pith
