// Watches what a running job chooses, by its control port.
#pragma once

#include <string>

#include "core/error.hpp"

namespace pith_explain {

struct Attachment {
  std::string address;  // rank 0's control port, HOST:PORT
  std::string id_file;  // a pithUniqueId; empty: the environment says the secret, as to a rank
};

// Prints what the job tells anew whenever it does, until its communicator ends.
pith::Error attach(const Attachment& to);

}  // namespace pith_explain
