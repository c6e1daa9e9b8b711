#include "runtime/build/cut_blocks.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/Local.h>

#include <algorithm>
#include <map>
#include <vector>

namespace cellc {

namespace {

using llvm::BasicBlock;
using llvm::Instruction;

class BlockCutter {
 public:
  BlockCutter(llvm::Function& function, const BlockLimits& limits) : function_(function), limits_(limits) {}

  void run() {
    std::vector<BasicBlock*> large;
    for (BasicBlock& block : function_)
      if (block.size() > limits_.longest) large.push_back(&block);
    if (large.empty()) return;
    gather_places();
    for (BasicBlock* block : large) cut(block);
    // A value's readers are looked for before any load is put in, while instructions of a block are numbered.
    for (const auto& [block, chain] : chains_) find_readers(block);
    for (Crossing& crossing : crossings_) pass_through(crossing);
  }

 private:
  static constexpr int kElsewhere = -1;

  /// Where a piece stands: in which block of before, and at which place there.
  struct Place {
    int chain, number;
  };
  /// A value that is read in other blocks than its own: by whom first in each of them.
  struct Crossing {
    Instruction* value;
    llvm::AllocaInst* slot;
    std::vector<std::pair<BasicBlock*, Instruction*>> first;  ///< a reader that is a phi: the end of its block
  };

  /// Fixed places on the stack are those of the entry, all of them in its first piece.
  void gather_places() {
    BasicBlock& entry = function_.getEntryBlock();
    for (Instruction& instruction : llvm::make_early_inc_range(entry))
      if (llvm::isa<llvm::AllocaInst>(instruction) && llvm::cast<llvm::AllocaInst>(instruction).isStaticAlloca())
        instruction.moveBefore(entry, entry.begin());
    llvm::IRBuilder<> at(&entry, entry.getFirstNonPHIOrDbgOrAlloca());
    goes_on_ = at.CreateAlloca(at.getInt8Ty());
    at.CreateAlignedStore(at.getInt8(1), goes_on_, llvm::Align(1), /*isVolatile=*/true);
    nowhere_ = BasicBlock::Create(function_.getContext(), "nowhere", &function_);
    new llvm::UnreachableInst(function_.getContext(), nowhere_);
  }

  void cut(BasicBlock* block) {
    std::vector<BasicBlock::iterator> starts;
    std::size_t count = 0;
    for (auto at = block->getFirstNonPHIOrDbgOrAlloca(); !at->isTerminator(); ++at)
      if (count++ == limits_.piece) starts.push_back(at), count = 1;
    // The last piece first: what is cut off is moved.
    std::vector<BasicBlock*> pieces;
    for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
      BasicBlock* rest = block->splitBasicBlock(*start, "piece");
      pieces.push_back(rest);
      // The code generator would join blocks of which it knows that one follows the other.
      Instruction* end = block->getTerminator();
      llvm::IRBuilder<> at(end);
      llvm::Value* on = at.CreateAlignedLoad(at.getInt8Ty(), goes_on_, llvm::Align(1), /*isVolatile=*/true);
      at.CreateCondBr(at.CreateTrunc(on, at.getInt1Ty()), rest, nowhere_);
      end->eraseFromParent();
    }
    pieces.push_back(block);
    const int chain = chain_count_++;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      BasicBlock* piece = pieces[pieces.size() - 1 - i];
      chains_.emplace_back(piece, Place{chain, static_cast<int>(i)});
      place_of_[piece] = chains_.back().second;
    }
  }

  void find_readers(BasicBlock* piece) {
    const Place here = place_of_.lookup(piece);
    for (Instruction& value : *piece) {
      if (value.getType()->isVoidTy() || llvm::isa<llvm::AllocaInst>(value)) continue;
      Crossing crossing{&value, nullptr, {}};
      llvm::DenseMap<BasicBlock*, Instruction*> first;
      int last = here.number;
      for (const llvm::Use& use : value.uses()) {
        auto* reader = llvm::cast<Instruction>(use.getUser());
        const auto* phi = llvm::dyn_cast<llvm::PHINode>(reader);
        if (phi) reader = phi->getIncomingBlock(use)->getTerminator();
        BasicBlock* where = reader->getParent();
        // A phi of the same block has the value there, at its end.
        if (where == piece) continue;
        Instruction*& earliest = first[where];
        if (!earliest || reader->comesBefore(earliest)) earliest = reader;
        const auto place = place_of_.find(where);
        const bool within = place != place_of_.end() && place->second.chain == here.chain && !phi;
        if (last != kElsewhere) last = within ? std::max(last, place->second.number) : kElsewhere;
      }
      if (first.empty()) continue;
      crossing.first.assign(first.begin(), first.end());
      crossing.slot = slot_for(value.getType(), here, last);
      crossings_.push_back(std::move(crossing));
    }
  }

  /// A place on the stack for a value that is last read in piece `last` of the same chain, or somewhere else.
  llvm::AllocaInst* slot_for(llvm::Type* type, Place here, int last) {
    std::multimap<int, llvm::AllocaInst*>& used = used_[{type, here.chain}];
    // One that was last read in this very piece may still be read after the value is made.
    if (!used.empty() && used.begin()->first < here.number) {
      llvm::AllocaInst* slot = used.begin()->second;
      used.erase(used.begin());
      if (last != kElsewhere) used.emplace(last, slot);
      return slot;
    }
    BasicBlock& entry = function_.getEntryBlock();
    llvm::IRBuilder<> at(&entry, entry.begin());
    llvm::AllocaInst* slot = at.CreateAlloca(type);
    if (last != kElsewhere) used.emplace(last, slot);
    return slot;
  }

  static void pass_through(const Crossing& crossing) {
    Instruction* value = crossing.value;
    const llvm::Align align = crossing.slot->getAlign();
    llvm::DenseMap<BasicBlock*, llvm::Value*> loaded;
    for (const auto& [block, reader] : crossing.first) {
      llvm::IRBuilder<> at(reader);
      loaded[block] = at.CreateAlignedLoad(value->getType(), crossing.slot, align);
    }
    for (llvm::Use& use : llvm::make_early_inc_range(value->uses())) {
      auto* reader = llvm::cast<Instruction>(use.getUser());
      const auto* phi = llvm::dyn_cast<llvm::PHINode>(reader);
      BasicBlock* where = phi ? phi->getIncomingBlock(use) : reader->getParent();
      if (where != value->getParent()) use.set(loaded.lookup(where));
    }
    BasicBlock& block = *value->getParent();
    const auto after = llvm::isa<llvm::PHINode>(value) ? block.getFirstInsertionPt() : std::next(value->getIterator());
    llvm::IRBuilder<>(&block, after).CreateAlignedStore(value, crossing.slot, align);
  }

  llvm::Function& function_;
  const BlockLimits limits_;
  llvm::AllocaInst* goes_on_ = nullptr;  ///< holds 1, which nobody but us knows
  BasicBlock* nowhere_ = nullptr;
  int chain_count_ = 0;
  std::vector<std::pair<BasicBlock*, Place>> chains_;
  llvm::DenseMap<BasicBlock*, Place> place_of_;
  std::vector<Crossing> crossings_;
  /// By type and chain: places on the stack by the piece in which they are last read.
  std::map<std::pair<llvm::Type*, int>, std::multimap<int, llvm::AllocaInst*>> used_;
};

/// With what is inlined into it; our functions call each other three deep at most.
std::size_t size_inlined(const llvm::Function& function) {
  std::size_t size = 0;
  for (const BasicBlock& block : function)
    for (const Instruction& instruction : block) {
      const auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
      const bool inlined = callee && !callee->isDeclaration() && callee->hasFnAttribute(llvm::Attribute::AlwaysInline);
      size += inlined ? size_inlined(*callee) : 1;
    }
  return size;
}

}  // namespace

void cut_blocks(llvm::Module& module, const BlockLimits& limits) {
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) BlockCutter(function, limits).run();
}

void call_what_is_long(llvm::Module& module, std::size_t most) {
  std::vector<llvm::Function*> ours;
  for (llvm::Function& function : module)
    if (!function.isDeclaration() && function.hasFnAttribute(llvm::Attribute::AlwaysInline)) ours.push_back(&function);
  for (llvm::Function* function : ours) {
    if (size_inlined(*function) * function->getNumUses() <= most) continue;
    function->removeFnAttr(llvm::Attribute::AlwaysInline);
    function->addFnAttr(llvm::Attribute::NoInline);
  }
}

}  // namespace cellc
