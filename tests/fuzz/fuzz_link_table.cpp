// Files of links (PITH_LINKS): what is accepted is saved and read again as it was, what is not is
// refused by a message and changes nothing; and what rank 0 tells the others of them.
#include "fuzz_target.hpp"
#include "model/link_table.hpp"

namespace pith::fuzz {

void run(std::span<const std::uint8_t> input) {
  const std::string_view text = text_of(input);
  static_cast<void>(KnownLinks::unpack(text));
  LinkTable table(3);
  const std::string before = table.save();
  if (const Error error = table.restore(text)) {
    expect(error.code() == Code::invalid_argument);
    expect(std::string_view(error.message()).starts_with("saved links"));
    expect(table.save() == before);
    return;
  }
  const KnownLinks known = KnownLinks::unpack(table.known().pack());
  for (const KnownLink& link : {known.views, known.messages, known.path, known.calls}) {
    expect(link.known() == (link.beta > 0) && link.alpha >= 0);
  }
  LinkTable again(3);
  expect(!again.restore(table.save()));
  expect(again.places() == table.places());
}

std::vector<std::string> seeds() {
  const std::string head = "pith links 2\nof 4 ranks on 2 hosts 89abcdef01234567\n";
  return {head, head + "views 1e-07 0.1 1e-10 0.1\nmessages 2e-06 0.1 2e-10 0.1\n",
          head + "path/0 2e-05 0.1 3e-09 0.1\npath/2 3e-05 0.1 1e-09 0.1\n",
          head + "calls 1e-4 0.2 2e-9 1.5\nreduce/host 1e-07 0.1 4e-10 0.1\n"};
}

}  // namespace pith::fuzz
