"""Operations of all ranks side by side, by group and sequence number. Pure."""
