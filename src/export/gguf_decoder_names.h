// The names of a decoder's tensors in GGUF files.
#pragma once

#include <string>
#include <vector>

#include "export/gguf_layout.h"
#include "models/decoder_config.h"

namespace trainer {

// Where a family differs from the others.
struct DecoderNames {
  bool has_head = false;
  bool copies_embedding = false;  // it is the output, too, and readers need that as a tensor of its own
  // Rows of q and k are stored in the order of readers that rotate neighbouring elements.
  bool reorders_heads = false;
  bool splits_gate_up = false;  // the layer of both is two tensors in the file
  double query_scale = 1.0;     // what readers do not multiply queries by
  // The norms before the feed-forward, and behind all layers.
  const char *before_mlp = "ffn_norm", *final_norm = "output_norm";
};

// Returns the parts in the file of a tensor of a text model; empty: there is no name for it.
std::vector<GgufPart> parts_of_decoder(const std::string& tensor, const DecoderConfig& facts,
                                       const DecoderNames& names);

}  // namespace trainer
