#include "comm/call_journal.hpp"

namespace pith {

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
